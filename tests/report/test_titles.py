"""Titles of reports say in words what was measured, at which lengths, and on what."""

from dataclasses import replace

import pytest

from attnbench.analysis.report import analyse
from attnbench.records import Outcome, Sweep
from attnbench.report.titles import title
from tests.sweeps import sweep


def titled(found: Sweep) -> str:
    return title(analyse(found))


def on(processor: str, *others: str) -> Sweep:
    found = sweep(("fastformer",), lengths=(128, 512))
    (session,) = found.sessions[:1]
    sessions = tuple(replace(session, processor=each) for each in (processor, *others))
    return replace(found, sessions=sessions)


@pytest.mark.parametrize(
    ("models", "said"),
    [
        (("fastformer",), "Fastformer, "),
        (("fastformer", "transformer"), "Fastformer and Transformer, "),
        (("fastformer", "transformer", "linformer", "longformer"), "4 mechanisms, "),
        (("transformer:eager", "transformer:sdpa"), "Transformer in 2 forms, options or sizes, "),
    ],
)
def test_mechanisms_are_named_up_to_three_and_then_counted(models, said):
    assert titled(sweep(models, lengths=(128, 512))).startswith(f"{said}128 to 512 tokens")


@pytest.mark.parametrize(
    ("processor", "place"),
    [
        ("AMD EPYC", "an AMD EPYC"),
        ("AMD EPYC 7763 64-Core Processor", "an AMD EPYC 7763"),
        ("Intel(R) Xeon(R) CPU @ 2.20GHz", "an Intel Xeon"),
        ("Neoverse-N1", "a Neoverse-N1"),
    ],
)
def test_a_machine_is_named_without_its_trade_marks(processor, place):
    assert titled(on(processor)) == f"Fastformer, 128 to 512 tokens, on {place}"


def test_several_machines_are_counted():
    assert titled(on("AMD EPYC", "Apple M1")).endswith(", on 2 machines")


def test_a_length_alone_is_said_once():
    assert ", 512 tokens, on " in titled(sweep(("fastformer",), lengths=(512,)))


def test_lengths_that_nothing_was_timed_at_are_not_in_the_title():
    whole = sweep(("fastformer",), lengths=(128, 512, 2048))
    long = {p.case.key for p in whole.plan if p.case.workload.seq_len == 2048}
    runs = tuple(
        replace(run, outcome=Outcome.SKIPPED, samples=()) if run.case in long else run
        for run in whole.runs
    )
    assert "Fastformer, 128 to 512 tokens, on " in titled(replace(whole, runs=runs))


def test_a_sweep_without_times_has_no_lengths_in_its_title():
    assert titled(replace(sweep(("fastformer",)), runs=())).startswith("Fastformer, on a")
