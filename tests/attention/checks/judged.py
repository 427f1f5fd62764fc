"""Kernels of a file, attempt by attempt, in this process, as `judge` tries them in another."""

from functools import cache
from pathlib import Path

from attnbench.attention.checks.panel import row
from attnbench.attention.checks.repeating import repeated
from attnbench.attention.checks.trial import NotApplicable, Trial
from attnbench.commands.judge.fitting import fit_kernel
from attnbench.mechanisms.catalogue import registry
from attnbench.records import Aspect

LENGTHS = ((16, 4), (640, 1))


@cache
def card_of(mechanism, file):
    return registry.card(f"{mechanism}:{Path(__file__).with_name(file)}")


def fit(mechanism, file, form, options=(), dtype="float32", width=256, heads=16, **how):
    """How a function is called, with what is to be tried of it."""
    how = {"lengths": LENGTHS, **how}
    card = card_of(mechanism, file)
    return fit_kernel(card, form, dict(options), dtype, "cpu", width, heads, **how)


def is_quick(attempt):
    """Whether an attempt is short, or the only one of its kind."""
    return attempt.tokens <= 100 or attempt.raced or attempt.aspect is Aspect.STEADY


def rows(mechanism, file, form, options=(), longest=640, quick=False, **how):
    """What is found of each attempt up to a length, one by one; if `quick`, of few."""
    kernel = fit(mechanism, file, form, options, **how)
    card = card_of(mechanism, file)
    config = card.configure({**dict(options), **kernel.options})
    for attempt in kernel.attempts:
        if attempt.tokens > longest or (quick and not is_quick(attempt)):
            continue
        trial = Trial(card, config, form, attempt.causal)
        try:
            yield repeated(trial, attempt) if attempt.repeats else row(trial, attempt)
        except NotApplicable:
            continue


def first_fault(*asked, **how):
    """The first row that does not pass, or None."""
    return next((found for found in rows(*asked, **how) if not found.passes), None)
