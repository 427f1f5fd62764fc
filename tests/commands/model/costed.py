"""Sweeps of a model's layers in which every round has another speed."""

from dataclasses import replace

from attnbench.analysis.report import analyse
from attnbench.commands.model.costs import (
    LayerKind,
    ModelCosts,
)
from tests.sweeps import decoded, raced

LENGTHS = (128, 512, 2048)


SPEEDS = 1.2 ** (1 / 3)  # the mean of those below


SPEED = (1.0, 1.5, 0.8)  # of the machine in each round, which falls on all kinds alike


def seconds(mechanism, n):
    return 0.2 if mechanism == "linformer" else n / 4096


def kind(words, layers, mechanism="", reason="", per_token=0.0):
    return LayerKind(words, layers, mechanism, reason, per_token, dict.fromkeys(LENGTHS, 0))


KINDS = (
    kind("linear", 3, "linformer"),
    kind("full", 1, "transformer", per_token=512.0),
)


POOLS = kind("pools", 2, reason="no mechanism here reads gated pools", per_token=8.0)


def swept(drop=lambda run: False, rounds=3):
    """A sweep of steps in which every round has another speed, and laps have no noise."""
    whole = decoded({"linformer": lambda n: 8, "transformer": lambda n: n}, lengths=LENGTHS)
    runs = tuple(run for run in whole.runs if run.round < rounds and not drop(run))

    def laps(case, round_):
        one = SPEED[round_] * seconds(case.mechanism, case.workload.seq_len)
        return dict.fromkeys(range(4), one)

    return raced(replace(whole, runs=runs), laps)


def costs(whole, kinds=KINDS):
    return ModelCosts(analyse(whole), kinds)


FED = (
    kind("linear", 3, "linformer"),
    kind("feed-forward", 4, "transformer")._replace(feeds=True),
)


LATENTS = (
    kind("windows", 3, "transformer", per_token=512.0),
    kind("linear", 2, "linformer"),
    kind("full", 1, "transformer", per_token=512.0),
)
