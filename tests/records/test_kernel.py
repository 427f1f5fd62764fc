"""What `judge` finds of a kernel, as data: what passes, what was tried, and other ways to call."""

import pytest

from attnbench.records import TRIED, Aspect, Attempt, Kernel, KernelFinding, PanelRow

ATTEMPT = Attempt(
    aspect=Aspect.RIGHT,
    inputs="as usual",
    tokens=64,
    batch=2,
    width=32,
    heads=4,
    dtype="float32",
    causal=False,
)


def kernel(ways):
    """A kernel of which only the ways to call it matter."""
    sizes = {"width": 32, "heads": 4, "head_width": 8}
    return Kernel(
        form="mine",
        options={},
        ways=ways,
        taken=("q", "k", "v"),
        untaken=(),
        modes=(False,),
        mask="",
        **sizes,
        refused={},
        attempts=(),
    )


def test_what_was_not_compared_is_no_fault():
    """A refusal by an exception, and what no budget was left for."""
    rows = {each: PanelRow.without(ATTEMPT, each, "a reason") for each in KernelFinding}
    assert {each for each, row in rows.items() if row.passes} == {
        *("passed", "fewer digits", "refused", "not tried"),
    }
    assert {each for each, row in rows.items() if not row.tried} == {"refused", "not tried"}
    assert {*KernelFinding} - TRIED == {"refused", "not tried"}


def test_a_row_without_a_comparison_keeps_its_attempt_and_reason():
    row = PanelRow.without(ATTEMPT, KernelFinding.FAILED, "it divides by zero")
    assert (row.attempt, row.finding, row.reason) == (ATTEMPT, "failed", "it divides by zero")
    assert row.errors == row.ours == row.allowed == {}


@pytest.mark.parametrize(
    ("errors", "compares"),
    [({"output": 1e-7}, False), ({"output": 1e-7, "dk": 1e-6}, True), ({}, False)],
)
def test_gradients_were_compared_where_one_is_among_the_errors(errors, compares):
    row = PanelRow(
        attempt=ATTEMPT, finding=KernelFinding.PASSED, errors=errors, ours={}, allowed={}
    )
    assert row.compares_gradients == compares


@pytest.mark.parametrize(
    ("ways", "worse"),
    [
        ({"a": 1e-7, "b": 1.0, "c": 0.02}, ["b", "c"]),
        ({"a": 1e-7, "b": 0.009}, []),  # it may be the way too
        ({"a": 0.5, "b": 0.4, "c": 0.6}, ["c"]),  # none is right, and the first is the best
        ({"a": 1e-7}, []),
    ],
)
def test_a_way_to_call_a_kernel_is_worse_where_it_clearly_errs_more(ways, worse):
    assert [*kernel(ways).worse_ways] == worse
