"""The panel of errors finds kernels that are wrong, and accuses none that is right."""

from contextlib import suppress
from itertools import takewhile
from pathlib import Path

import pytest
import torch

from attnbench.attention.contract import Unusable
from attnbench.catalogue import registry
from attnbench.verify.fitting import fitted, judged, with_options
from attnbench.verify.panel import WIDTH, panel, row, stressed
from attnbench.verify.stress import STRESSES
from attnbench.verify.trial import NotApplicable, Trial, causal_values

KERNELS = Path(__file__).with_name("kernels.py")
FLOAT32 = torch.float32
OFTEN = ("forgetting", "gated_linear", "kimi_delta", "transformer")  # all take half an hour
# what is found of each kernel first: the inputs and the verdict
WRONG = {
    ("kimi_delta", "rounded_beta"): ("as usual", "imprecise"),
    ("kimi_delta", "decays_near_one_are_one"): ("decays near 1", "wrong"),
    ("kimi_delta", "linear_g"): ("as usual", "wrong"),
    ("kimi_delta", "state_in_bfloat16"): ("as usual", "imprecise"),
    ("kimi_delta", "last_chunk_dropped"): ("as usual", "wrong"),
    ("kimi_delta", "half_the_heads"): ("as usual", "wrong"),
    ("kimi_delta", "no_gradient_of_keys"): ("as usual", "wrong"),
    ("kimi_delta", "no_gradient_of_decays"): ("as usual", "wrong"),
    ("gated_linear", "unbounded"): ("decays of 1e-12", "not finite"),
    ("transformer", "values_in_tf32"): ("as usual", "imprecise"),
    ("transformer", "without_scale"): ("as usual", "wrong"),
    ("transformer", "one_ahead"): ("as usual", "wrong"),
    ("transformer", "without_diagonal"): ("as usual", "wrong"),
    ("transformer", "without_maximum"): ("large queries", "not finite"),
    ("transformer", "not_a_number"): ("as usual", "not finite"),
    ("sliding_window", "window_off_by_one"): ("with window=5", "wrong"),
    ("linformer", "fixed"): ("as usual", "wrong"),
}
RIGHT = [
    ("kimi_delta", "delta", "bhnd", True),
    ("kimi_delta", "tokens_first", "bnhd", True),
    ("kimi_delta", "forward_only", "bhnd", True),
    ("gated_linear", "gated", "bhnd", True),
    ("mamba2", "faded", "bhnd", True),
    ("retention", "faded", "bhnd", True),
    ("transformer", "softmax", "bhnd", True),
    ("transformer", "always_causal", "bhnd", True),
    ("sliding_window", "windowed", "bhnd", True),
    ("linformer", "shortened", "bhnd", False),
]


def card_of(mechanism):
    return registry.card(f"{mechanism}:{KERNELS}")


def rows(mechanism, form, dtype=FLOAT32):
    """The rows of a kernel one by one, so that the first failure ends the work."""
    _, trial = fitted(card_of(mechanism), form, {}, dtype, "cpu")[0]
    yield from with_options(trial, {"window"} if "window" in form else (), dtype)
    yield from panel(trial, dtype)


@pytest.mark.parametrize(("mechanism", "form"), WRONG, ids=lambda name: name)
def test_a_wrong_kernel_is_found_by_what_is_wrong(mechanism, form):
    first = next(row for row in rows(mechanism, form) if not row["passes"])
    assert (first["inputs"], first["verdict"]) == WRONG[mechanism, form], first


@pytest.mark.parametrize(("mechanism", "form", "axes", "causal"), RIGHT)
def test_a_right_kernel_passes_in_the_axes_that_it_takes(mechanism, form, axes, causal):
    error, trial = fitted(card_of(mechanism), form, {}, FLOAT32, "cpu")[0]
    assert (trial.config.axes, trial.causal) == (axes, causal)
    assert error < 1e-5
    for found in takewhile(lambda found: found["part"] == "right", rows(mechanism, form)):
        assert found["passes"], found
        assert (len(found["errors"]) > 1) == (form != "forward_only")


@pytest.mark.parametrize(
    ("mechanism", "form"),
    [
        pytest.param(mechanism, form, marks=() if form == "always_causal" else pytest.mark.long)
        for mechanism, form, *_ in RIGHT
    ],
)
def test_a_right_kernel_is_steady(mechanism, form):
    assert [row for row in rows(mechanism, form) if not row["passes"]] == []


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ("raises", "it gives nothing to compare: with bhnd RuntimeError: no kernel for this card"),
        ("shorter", "the output has shape [2, 4, 63, 32], not [2, 4, 64, 32]"),
        ("listed", "TypeError: it gives a list, not a tensor"),
        ("other_names", "'decay'; with bnhd TypeError"),
        ("nothing", "there is no function 'nothing'; the file has"),
    ],
)
def test_what_cannot_be_judged_is_said(form, said):
    with pytest.raises(Unusable) as error:
        judged(card_of("transformer"), form, {}, "float32", "cpu")
    assert said in str(error.value)


def test_axes_that_are_given_are_not_tried():
    card = card_of("kimi_delta")
    ((error, trial),) = fitted(card, "delta", {"axes": "bnhd"}, FLOAT32, "cpu")
    assert trial.config.axes == "bnhd"
    assert error > 0.1


def own_forms(name):
    """A trial of each form of a mechanism that runs here, packages' too."""
    card = registry.card(name)
    for causal in causal_values(card.causality):
        for form, module in card.forms.items():
            trial = Trial(card, card.config(), form, causal, width=WIDTH)
            runs = not (module.compiles or module.deviation)
            if runs and trial.refusal(trial.workload(512)) is None:
                yield trial


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.long if name in OFTEN else pytest.mark.faults)
        for name in registry.names()
    ],
)
def test_no_form_of_the_registry_is_accused(name):
    for trial in own_forms(name):
        assert [row for row in panel(trial) if not row["passes"]] == [], trial.form


@pytest.mark.long
@pytest.mark.parametrize(
    "name", ["kimi_delta", "gated_delta_net", "gated_linear", "mamba2", "rwkv7"]
)
@pytest.mark.parametrize("stress", STRESSES, ids=lambda stress: stress.name)
def test_chunks_in_float64_are_as_exact_as_a_loop_over_tokens(name, stress):
    """The panel's reference of longer sequences."""
    card = registry.card(name)
    trial = Trial(card, card.config(), "eager", True, width=WIDTH)
    with suppress(NotApplicable):
        errors = row(trial, "steady", stress, 512, torch.float64)["errors"]
        assert max(errors.values()) < 1e-8, errors


def test_a_check_under_stress_has_the_form_of_any_other():
    found = [*stressed(registry.card("fnet"))]
    assert {row["result"] for row in found} == {"passed"}
    assert {*found[0]} == {"check", "trial", "result", "reason"}
    assert any("zeros" in row["check"] for row in found)
