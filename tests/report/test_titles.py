"""Titles of reports say in words what was measured, at which lengths, and on what."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from attnbench.analysis.report import analyse
from attnbench.records import Case, Outcome, Part, Sweep, Workload
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


def only(whole: Sweep, chosen: Callable[[Case], bool]) -> Sweep:
    """The sweep as it is where only the chosen cases were timed, and the others skipped."""
    left = {line.case.key for line in whole.plan if not chosen(line.case)}
    runs = (
        replace(run, outcome=Outcome.SKIPPED, samples=(), reason="over the budget")
        if run.case in left and run.part is Part.TIME
        else run
        for run in whole.runs
    )
    return replace(whole, runs=tuple(runs))


def test_lengths_that_nothing_was_timed_at_are_not_in_the_title():
    timed = only(sweep(("fastformer",)), lambda case: case.workload.seq_len <= 8192)
    assert titled(timed).startswith("Fastformer, 128 to 8,192 tokens, on an ")


def test_mechanisms_that_were_not_timed_are_not_in_the_title():
    whole = sweep(("fastformer", "transformer", "linformer"), lengths=(128, 512))
    timed = only(whole, lambda case: case.mechanism != "linformer")
    assert titled(timed).startswith("Fastformer and Transformer, 128 to 512 tokens, on ")


def test_mechanisms_that_were_not_timed_are_not_counted():
    names = ("fastformer", "transformer", "linformer", "longformer", "bigbird")
    whole = sweep(names, lengths=(128, 512))
    timed = only(whole, lambda case: case.mechanism != "bigbird")
    assert titled(timed).startswith("4 mechanisms, ")


def test_forms_that_were_not_timed_are_not_counted():
    whole = sweep(("transformer:eager", "transformer:sdpa"), lengths=(128, 512))
    timed = only(whole, lambda case: case.form == "sdpa")
    assert titled(timed).startswith("Transformer, 128 to 512 tokens, on ")


def test_a_curve_whose_form_changes_with_length_is_one_mechanism():
    def form(mechanism: str, workload: Workload) -> str:
        return "eager" if workload.seq_len < 512 else "folded"

    whole = sweep(("fastformer",), lengths=(128, 512), form=form)
    assert titled(whole).startswith("Fastformer, 128 to 512 tokens, on ")


@pytest.mark.parametrize(
    "ended", [lambda whole: only(whole, lambda case: False), lambda whole: replace(whole, runs=())]
)
def test_a_sweep_without_times_says_so_in_its_title(ended):
    whole = ended(sweep(("fastformer", "transformer"), lengths=(128, 512)))
    assert titled(whole).startswith("Fastformer and Transformer, nothing timed, on an Imaginary")
