"""The process of `judge`, here: it finds how a function is called, and makes one attempt."""

from dataclasses import replace

import pytest

from attnbench.attention.contract import Unusable
from attnbench.commands.judge.worker import Worker
from attnbench.measuring import Unmeasured
from attnbench.records import Aspect, Attempt, messages

KERNELS = """
from torch.nn.functional import scaled_dot_product_attention as attend

def local(q, k, v):
    return attend(q, k, v)

def doubled(q, k, v):
    return 2 * attend(q, k, v)
"""
ATTEMPT = Attempt(
    aspect=Aspect.RIGHT,
    inputs="as usual",
    tokens=16,
    batch=1,
    width=32,
    heads=4,
    dtype="float32",
    causal=False,
    gradients=False,
)


@pytest.fixture
def asks(tmp_path):
    """Questions on the functions of a file, and the process that answers."""
    file = tmp_path / "kernels.py"
    file.write_text(KERNELS)
    worker = Worker(None)

    def fit(form, **options):
        question = messages.Fit(
            mechanism=f"transformer:{file}",
            form=form,
            options=options,
            dtype="float32",
            device="cpu",
            width=32,
            heads=4,
            lengths=(),
            causal=False,
            chosen=True,
        )
        return worker.fit(question).kernel

    def attempt(form, one=ATTEMPT):
        question = messages.MakeAttempt(
            mechanism=f"transformer:{file}",
            form=form,
            options={"axes": "bhnd"},
            device="cpu",
            attempt=one,
            left_s=60.0,
        )
        return worker.make_attempt(question)

    return fit, attempt


def test_a_function_is_fitted_and_an_attempt_compared(asks):
    fit, attempt = asks
    kernel = fit("local")
    assert kernel.options["axes"] == "bhnd"
    assert kernel.attempts
    found = attempt("local")
    assert found.row.passes
    assert found.row.attempt == ATTEMPT
    assert not found.changed


def test_a_function_that_is_wrong_does_not_pass(asks):
    _, attempt = asks
    found = attempt("doubled").row
    assert (found.finding, found.passes) == ("wrong", False)
    assert found.errors["output"] > 0.5


def test_the_same_call_is_made_again_and_again_where_that_is_asked(asks):
    _, attempt = asks
    found = attempt("local", replace(ATTEMPT, repeats=True)).row
    assert found.passes
    assert found.calls > 1


def test_what_cannot_be_called_is_refused_with_its_reason(asks):
    fit, _ = asks
    with pytest.raises(Unusable, match="there is no function 'nothing'"):
        fit("nothing")
    with pytest.raises(Unmeasured, match="no option 'speed'") as caught:
        fit("local", speed=2)
    assert caught.value.outcome == "failed"
