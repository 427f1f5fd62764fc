"""The panel of errors finds kernels that are wrong, and accuses none that is right."""

from contextlib import suppress
from dataclasses import replace
from itertools import takewhile

import pytest
import torch

from attnbench.attention.checks.equations import Values
from attnbench.attention.checks.panel import (
    Comparing,
    FormErrors,
    allowed,
    constant_factor,
    deviations,
    differences,
    panel,
    row,
    stressed,
    summed,
)
from attnbench.attention.checks.plan import of_form
from attnbench.attention.checks.stress import STRESSES
from attnbench.attention.checks.trial import NotApplicable, Trial, causal_values
from attnbench.attention.contract import Unusable
from attnbench.devices import DeviceFailed
from attnbench.mechanisms.catalogue import registry
from attnbench.records import Aspect, Attempt, KernelFinding
from tests.attention.checks import planted
from tests.attention.checks.judged import card_of, first_fault, fit, rows

OFTEN = ("forgetting", "gated_linear", "kimi_delta", "transformer")  # all take half an hour
WRONG, NOT_FINITE, IMPRECISE = (
    KernelFinding.WRONG,
    KernelFinding.NOT_FINITE,
    KernelFinding.IMPRECISE,
)
# what is found of each kernel first: the inputs and the finding
FAULTS = {
    ("kimi_delta", "rounded_beta"): ("as usual", IMPRECISE),
    ("kimi_delta", "decays_near_one_are_one"): ("decays near 1", WRONG),
    ("kimi_delta", "linear_g"): ("as usual", WRONG),
    ("kimi_delta", "state_in_bfloat16"): ("as usual", IMPRECISE),
    ("kimi_delta", "last_chunk_dropped"): ("as usual", WRONG),
    ("kimi_delta", "half_the_heads"): ("as usual", WRONG),
    ("kimi_delta", "no_gradient_of_keys"): ("as usual", WRONG),
    ("kimi_delta", "no_gradient_of_decays"): ("as usual", WRONG),
    ("gated_linear", "unbounded"): ("decays of 1e-12", NOT_FINITE),
    ("transformer", "values_in_tf32"): ("as usual", IMPRECISE),
    ("transformer", "without_scale"): ("as usual", WRONG),
    ("transformer", "one_ahead"): ("as usual", WRONG),
    ("transformer", "without_diagonal"): ("as usual", WRONG),
    ("transformer", "without_maximum"): ("large queries", NOT_FINITE),
    ("transformer", "not_a_number"): ("as usual", NOT_FINITE),
    ("sliding_window", "window_off_by_one"): ("with window=5", WRONG),
    ("linformer", "fixed"): ("as usual", WRONG),
}
RIGHT = [
    ("kimi_delta", "delta", "bhnd", (True,)),
    ("kimi_delta", "tokens_first", "bnhd", (True,)),
    ("kimi_delta", "forward_only", "bhnd", (True,)),
    ("gated_linear", "gated", "bhnd", (True,)),
    ("mamba2", "faded", "bhnd", (True,)),
    ("retention", "faded", "bhnd", (True,)),
    ("transformer", "softmax", "bhnd", (False, True)),
    ("transformer", "always_causal", "bhnd", (True,)),
    ("sliding_window", "windowed", "bhnd", (True,)),
    ("linformer", "shortened", "bhnd", (False,)),
]
USUALLY = ("softmax", "windowed")  # others take seconds each
SECONDS = ("decays_near_one_are_one", "without_maximum")  # of faults, that each takes
SMALL = {"width": 64, "heads": 4, "lengths": ()}
QUICK = {**SMALL, "quick": True}


@pytest.mark.parametrize(
    ("mechanism", "form"),
    [
        pytest.param(*kernel, marks=pytest.mark.long if kernel[1] in SECONDS else ())
        for kernel in FAULTS
    ],
)
def test_a_wrong_kernel_is_found_by_what_is_wrong(mechanism, form):
    found = first_fault(mechanism, "kernels.py", form, **QUICK)
    assert (found.attempt.inputs, found.finding) == FAULTS[mechanism, form], found


@pytest.mark.parametrize("form", ["delta", "tokens_first", "forward_only"])
def test_axes_that_are_not_given_are_found(form):
    _, _, axes, modes = next(row for row in RIGHT if row[1] == form)
    kernel = fit("kimi_delta", "kernels.py", form, **SMALL)
    assert (kernel.options["axes"], kernel.modes) == (axes, modes)


@pytest.mark.parametrize(
    ("mechanism", "form", "axes", "modes"),
    [pytest.param(*row, marks=() if row[1] in USUALLY else pytest.mark.long) for row in RIGHT],
)
def test_a_right_kernel_passes_in_the_axes_that_it_takes(mechanism, form, axes, modes):
    kernel = fit(mechanism, "kernels.py", form, **SMALL)
    assert (kernel.options["axes"], kernel.modes) == (axes, modes)
    assert min(kernel.ways.values()) < 1e-5
    tried = rows(mechanism, "kernels.py", form, **QUICK)
    usual = takewhile(lambda found: not found.attempt.repeats, tried)
    for found in usual:
        assert found.passes, found
        if found.attempt.gradients and found.errors:
            assert (len(found.errors) > 2) == (form != "forward_only")


@pytest.mark.parametrize(
    ("mechanism", "form"),
    [
        pytest.param(mechanism, form, marks=() if form == "always_causal" else pytest.mark.long)
        for mechanism, form, *_ in RIGHT
    ],
)
def test_a_right_kernel_is_steady(mechanism, form):
    assert first_fault(mechanism, "kernels.py", form, **SMALL) is None


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ("raises", "it gives nothing to compare: RuntimeError: no kernel for this card"),
        ("shorter", "the output has shape [2, 16, 63, 16], not [2, 16, 64, 16]"),
        ("listed", "TypeError: it gives a list, not a tensor"),
        ("other_names", "it takes decay, which nothing gives; it may take q, k, v"),
        ("nothing", "there is no function 'nothing'; the file has"),
    ],
)
def test_what_cannot_be_judged_is_said(form, said):
    with pytest.raises(Unusable) as error:
        fit("transformer", "kernels.py", form)
    assert said in str(error.value)


def test_arguments_are_listed_only_where_they_matter():
    with pytest.raises(Unusable) as error:
        fit("transformer", "kernels.py", "raises")
    assert "may take" not in str(error.value)


def test_axes_that_are_given_are_not_tried():
    kernel = fit("kimi_delta", "kernels.py", "delta", {"axes": "bnhd"}, **SMALL)
    assert kernel.options["axes"] == "bnhd"
    assert min(kernel.ways.values()) > 0.1


def own_forms(name):
    """A trial of each form of a mechanism that runs here, packages' too."""
    card = registry.card(name)
    for causal in causal_values(card.causality):
        for form, module in card.forms.items():
            trial = Trial(card, card.config(), form, causal, width=128)
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
        assert [row for row in panel(trial, of_form(trial)) if not row.passes] == [], trial.form


@pytest.fixture
def breaking(monkeypatch):
    """A GPU that fails for good as soon as `transformer:sdpa` runs in float32."""
    fault = RuntimeError("CUDA error: an illegal memory access was encountered")
    evaluated, broken = Comparing.evaluated, []

    def evaluate(self, module, tensors, core=None, backward=None):
        if type(module).__name__ == "Sdpa" and module.query.weight.dtype is torch.float32:
            broken.append(module)
        synchronize()
        return evaluated(self, module, tensors, core, backward)

    def synchronize(device=None):
        if broken:
            raise fault

    monkeypatch.setattr(Comparing, "evaluated", evaluate)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)


@pytest.mark.parametrize("tokens", [512, 17])
@pytest.mark.parametrize("form", ["sdpa", "eager"])
def test_a_kernel_that_breaks_the_gpu_ends_the_panel_at_its_row(breaking, form, tokens):
    """Nothing is computed there any more, also nothing exact; no length excuses it."""
    card = registry.card("transformer")
    trial = Trial(card, card.config(), form, False)
    attempt = replace(USUAL_ATTEMPT, tokens=tokens)
    (found,) = panel(trial, iter([attempt, replace(attempt, tokens=64)]))
    assert found.finding is KernelFinding.FAILED
    assert found.attempt == attempt
    assert "illegal memory access" in found.reason


def test_a_process_with_a_broken_gpu_makes_no_further_attempt(breaking):
    """So that its parent starts another one."""
    card = registry.card("transformer")
    trial = Trial(card, card.config(), "sdpa", False)
    with pytest.raises(DeviceFailed, match="illegal memory access"):
        row(trial, USUAL_ATTEMPT)


@pytest.mark.long
@pytest.mark.parametrize(
    "name", ["kimi_delta", "gated_delta_net", "gated_linear", "mamba2", "rwkv7"]
)
@pytest.mark.parametrize("stress", STRESSES, ids=lambda stress: stress.name)
def test_chunks_in_float64_are_as_exact_as_a_loop_over_tokens(name, stress):
    """The panel's reference of longer sequences."""
    card = registry.card(name)
    trial = Trial(card, card.config(), "eager", True, width=128)
    attempt = Attempt(
        aspect=Aspect.STEADY,
        inputs=stress.name,
        tokens=512,
        batch=2,
        width=128,
        heads=4,
        dtype="float64",
        causal=True,
    )
    with suppress(NotApplicable):
        errors = row(trial, attempt).errors
        assert max(errors.values()) < 1e-8, errors


@pytest.mark.long
def test_a_check_under_stress_has_the_form_of_any_other():
    found = [*stressed(registry.card("fnet"))]
    assert {row["result"] for row in found} == {"passed"}
    assert {*found[0]} == {"check", "trial", "result", "reason"}
    assert any("zeros" in row["check"] for row in found)


# the mechanism, options, the number type, the inputs by which each is found
T, G, K = "transformer", "grouped_query", "kimi_delta"
USUAL, AGAIN, MASKED = "as usual", "the same again", "masked"
PLANTED = {
    "keys_dropped_but_for_d_32": (T, USUAL),
    "scale_of_d_32": (T, USUAL),
    "heads_after_the_fourth": (T, USUAL),
    "batch_above_two": (T, USUAL),
    "keys_beyond_the_panel": (T, USUAL),
    "tail_unmasked": (T, USUAL),
    "lost_at_odd_lengths": (T, USUAL),
    "one_token_is_zero": (T, USUAL),
    "wrong_at_d_128": (T, USUAL),
    "wrong_at_d_64": (T, USUAL),
    "last_head_is_the_first": (T, USUAL),
    "third_sequence_is_zero": (T, USUAL),
    "widths_of_powers_of_two": (T, USUAL),
    "batch_of_the_first_call": (T, AGAIN),
    "mask_one_ahead": (T, USUAL),
    "diagonal_missing": (T, USUAL),
    "mask_after_softmax": (T, USUAL),
    "causal_is_ignored": (T, USUAL),
    "always_causal_though_told": (T, USUAL),
    "mask_is_ignored": (T, MASKED),
    "mask_only_at_the_end": (T, MASKED),
    "mask_of_the_first_sequence": (T, MASKED),
    "padding_enters_the_sum": (T, MASKED),
    "interleaved_heads": (G, "with kv_heads=2"),
    "values_interleaved": (G, "with kv_heads=2"),
    "groups_of_four": (G, "with kv_heads=2"),
    "every_fortieth_call": (T, AGAIN),
    "second_call_is_half": (T, AGAIN),
    "type_of_later_calls": (T, AGAIN),
    "wider_output": (T, USUAL),
    "scaled_in_place": (T, USUAL),
    "values_zeroed_after": (T, USUAL),
    "keys_halved_after": (T, USUAL),
    "narrower_output": (T, USUAL),
    "remembers_by_address": (T, AGAIN),
    "remembers_by_a_number": (T, AGAIN),
    "late_rows_off": (T, USUAL),
    "old_keys_dropped": (T, USUAL),
    "late_rows_in_bfloat16": (T, USUAL),
    "softcapped": (T, USUAL),
    "gradient_of_keys_scaled": (T, USUAL),
    "queries_detached_beyond_the_panel": (T, USUAL),
    "queries_detached_late": ("retention", USUAL),
    "one_head_of_keys_detached": (T, USUAL),
    "gradient_of_values_doubled": (T, USUAL),
    "decays_detached": (K, USUAL),
    "twice_the_output": (K, USUAL),
    "step_of_the_next_token": ("mamba2", USUAL),
    "wrong_without_gradients": (T, USUAL),
    "strides_of_whole_tensors": (T, "not contiguous"),
    "mask_is_ignored_in_blocks": (T, MASKED),
    "gradient_zeroed_in_backward": (T, USUAL),
    "keys_zeroed_in_backward": (T, USUAL),
}
NARROW = frozenset({"old_keys_dropped", "queries_detached_late"})  # judged in bfloat16
# whose fault shows after all short attempts
QUICKLY = frozenset(
    {
        *("keys_beyond_the_panel", "remembers_by_address", "every_fortieth_call"),
        *("queries_detached_beyond_the_panel", "batch_of_the_first_call"),
        *("widths_of_powers_of_two", "wrong_without_gradients", "strides_of_whole_tensors"),
    }
)
# these take a second or more, or the usual tests have another of their kind
SELDOM = frozenset(
    {
        "keys_dropped_but_for_d_32",
        "scale_of_d_32",
        "last_head_is_the_first",
        "third_sequence_is_zero",
        "wrong_at_d_64",
        "diagonal_missing",
        "always_causal_though_told",
        "mask_of_the_first_sequence",
        "values_interleaved",
        "groups_of_four",
        "second_call_is_half",
        "type_of_later_calls",
        "remembers_by_a_number",
        "values_zeroed_after",
        "gradient_of_values_doubled",
        "decays_detached",
        "step_of_the_next_token",
        "keys_beyond_the_panel",
        "queries_detached_beyond_the_panel",
        "mask_after_softmax",
        "causal_is_ignored",
        "mask_only_at_the_end",
        "remembers_by_address",
        "padding_enters_the_sum",
    }
)


@pytest.mark.parametrize(
    "form",
    [pytest.param(f, marks=pytest.mark.long if f in SELDOM else ()) for f in PLANTED],
)
def test_a_planted_fault_is_found(form):
    planted.calls.clear()
    planted.memory.clear()
    mechanism, inputs = PLANTED[form]
    dtype = "bfloat16" if form in NARROW else "float32"
    found = first_fault(mechanism, "planted.py", form, dtype=dtype, quick=form in QUICKLY)
    assert found is not None
    assert inputs in (found.attempt.inputs, USUAL) or found.attempt.inputs == USUAL, found


def test_what_changes_its_inputs_is_said_so():
    found = first_fault(T, "planted.py", "scaled_in_place", **QUICK)
    assert (found.finding, found.reason) == (KernelFinding.CHANGES_INPUTS, "q")


def test_what_changes_its_inputs_is_said_where_its_backward_pass_fails_for_that():
    found = first_fault(T, "planted.py", "keys_halved_after", **QUICK)
    assert found.finding is KernelFinding.CHANGES_INPUTS
    assert found.reason.startswith("k; then RuntimeError: one of the variables needed")


@pytest.mark.parametrize(
    ("form", "overwritten"),
    [
        ("gradient_zeroed_in_backward", "the gradient of its output"),
        ("keys_zeroed_in_backward", "k"),
    ],
)
def test_what_a_backward_pass_overwrites_is_named(form, overwritten):
    found = first_fault(T, "planted.py", form, **QUICK)
    assert (found.finding, found.reason) == (KernelFinding.CHANGES_INPUTS, overwritten)


def test_an_error_of_calls_without_gradients_is_named_as_such():
    found = first_fault(T, "planted.py", "wrong_without_gradients", quick=True)
    assert found.finding is WRONG
    assert found.worst == "output without gradients"
    assert found.errors["output"] < 1e-5 < found.errors[found.worst]
    assert found.ours[found.worst] == found.ours["output"]


def test_a_call_without_gradients_that_raises_hides_no_fault_of_the_one_with_them():
    form = "odd_lengths_wrong_and_refused_without_gradients"
    found = first_fault(T, "planted.py", form, **QUICK)
    assert (found.finding, found.attempt.tokens) == (IMPRECISE, 1)
    every = [*rows(T, "planted.py", "refused_without_gradients", **QUICK)]
    refused = [each for each in every if each.finding is KernelFinding.REFUSED]
    assert {each.attempt.tokens for each in refused if each.attempt.gradients} == {1, 17, 100}
    assert all(each.passes for each in every)
    assert any(each.reason.startswith("without gradients: ValueError: N is") for each in refused)


def test_another_type_of_a_call_with_gradients_is_seen_beside_one_without():
    found = first_fault(T, "planted.py", "wider_with_gradients", dtype="bfloat16", **QUICK)
    assert found.finding is KernelFinding.OTHER_TYPE
    assert found.reason == "float32 for bfloat16"


def test_views_of_wider_tensors_are_stress_and_may_be_refused():
    found = first_fault(T, "planted.py", "strides_of_whole_tensors", quick=True)
    assert (found.attempt.aspect, found.attempt.inputs) == (Aspect.STEADY, "not contiguous")
    refusing = [
        each
        for each in rows(T, "kernels.py", "only_whole_tensors", **QUICK)
        if each.attempt.inputs == "not contiguous"
    ]
    assert [each.finding for each in refusing] == [KernelFinding.REFUSED]


def test_another_type_is_said_where_it_costs_digits_too():
    found = first_fault(T, "planted.py", "narrower_output", **QUICK)
    assert "it gives float16 for float32" in found.reason


def test_fifty_three_faults_are_planted():
    assert len(PLANTED) == 53
    assert all(hasattr(planted, form) for form in PLANTED)


@pytest.mark.parametrize(
    ("mechanism", "form", "options"),
    [
        (T, "sdpa", {}),
        pytest.param(G, "grouped", {}, marks=pytest.mark.long),
        pytest.param("retention", "retained", {}, marks=pytest.mark.long),
        pytest.param("mamba2", "ssm", {}, marks=pytest.mark.long),
        pytest.param("rwkv7", "rwkv", {}, marks=pytest.mark.long),
        pytest.param(K, "bound_at_minus_five", {"lower_bound": -5.0}, marks=pytest.mark.long),
        (T, "only_d_64", {}),
    ],
)
@pytest.mark.parametrize("small", [pytest.param(False, marks=pytest.mark.long), True])
def test_what_is_right_beside_the_faults_is_not_accused(mechanism, form, options, small):
    sizes = QUICK if small else {}
    for found in rows(mechanism, "planted.py", form, options, **sizes):
        if small and found.attempt.repeats:
            break
        assert found.passes, found


def test_no_log_of_a_decay_is_at_the_bound_itself_in_any_number_type():
    """What limits there may have a gradient or none."""
    form, bound = "bound_at_minus_five", {"lower_bound": -1.0}
    kernel = fit(K, "planted.py", form, bound)
    card = card_of(K, "planted.py")
    config = card.configure({**bound, **kernel.options})
    usual = next(each for each in kernel.attempts if each.tokens == 100)
    g = Comparing(Trial(card, config, form, True), usual).ordinary()["g"]
    assert (g.bfloat16() > -1).all()
    assert g.min() < -0.98


def test_a_bound_of_gates_is_kept_under_stress():
    found = first_fault(K, "planted.py", "bound_at_minus_five", **QUICK)
    assert found is not None


def test_a_kernel_for_one_head_width_is_judged_at_it():
    kernel = fit(T, "planted.py", "only_d_64")
    assert (kernel.head_width, kernel.width, kernel.heads) == (64, 256, 4)
    assert "written for d = 64, not 16" in kernel.refused["16"]
    with pytest.raises(Unusable) as error:
        fit(T, "planted.py", "only_d_64", chosen=True)
    assert "written for d = 64" in str(error.value)


def test_the_last_numbers_of_a_wrong_output_name_a_constant_factor():
    y = torch.randn(2, 3, 5, 64, dtype=torch.float64)
    assert constant_factor(2 * y, y, 64) == "2"
    assert constant_factor(y / 8, y, 64) == "0.125 (d^-0.5)"
    assert constant_factor(y, y, 64) == ""
    assert constant_factor(y + 0.1, y, 64) == ""


def test_a_factor_is_said_in_the_reason():
    found = first_fault(K, "planted.py", "twice_the_output", **SMALL)
    assert "its output is 2 times ours" in found.reason


# the plain functions of flash-linear-attention and transformers
PACKAGES = [
    ("gated_delta_net", "recurrent_delta"),
    ("gated_delta_net", "chunked_delta"),
    ("gated_delta_net", "chunked_of_qwen"),
    ("gated_delta_net", "recurrent_of_qwen"),
    ("kimi_delta", "recurrent_kda"),
    ("mamba2", "recurrent_simple"),
    ("mamba2", "chunked_simple"),
    ("mamba2", "all_pairs"),
    ("retention", "recurrent_simple"),
    ("retention", "all_pairs"),
    ("gated_linear", "recurrent_gla"),
    ("forgetting", "forgetting"),
    ("transformer", "of_torch"),
]


def judged_package(mechanism, form):
    """The rows of a function of a package, but for repeated calls."""
    pytest.importorskip("fla")
    pytest.importorskip("transformers")
    sizes = {**SMALL, "lengths": ((512, 1), (1024, 1)), "longest": 1024}
    found = rows(mechanism, "packages.py", form, **sizes)
    return (row for row in found if not row.attempt.repeats)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("mechanism", "form"), PACKAGES)
def test_no_plain_function_of_a_package_is_accused(mechanism, form):
    assert [found for found in judged_package(mechanism, form) if not found.passes] == []


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_chunks_that_overflow_at_strong_decays_are_not_steady():
    """As those of Kimi's delta rule in flash-linear-attention's plain code, which is right."""
    bad = [found for found in judged_package("kimi_delta", "chunked_kda") if not found.passes]
    assert {found.finding for found in bad} == {KernelFinding.NOT_FINITE}
    assert {found.attempt.aspect for found in bad} == {Aspect.STEADY}


def limits(tokens=512, dtype="float32", reference="float64", ours=0.0, summing=0.0):
    """What is allowed of an output whose errors of our forms, and of sums, are these."""
    shown = FormErrors(
        errors={"output": 1.0},
        ours={"output": ours},
        summing={"output": summing},
        reason="",
        out_of_memory=False,
        gave="",
        changed=(),
        factor="",
        reference=reference,
        head_width=16,
    )
    attempt = replace(USUAL_ATTEMPT, tokens=tokens, dtype=dtype)
    return allowed(shown, attempt)["output"]


USUAL_ATTEMPT = Attempt(
    aspect=Aspect.RIGHT,
    inputs="as usual",
    tokens=512,
    batch=2,
    width=64,
    heads=4,
    dtype="float32",
    causal=False,
)


def test_what_is_allowed_follows_from_what_sound_arithmetic_costs_and_not_from_the_length():
    assert limits(tokens=64) == limits(tokens=65_536) == pytest.approx(3e-6)
    assert limits(ours=4e-7) == pytest.approx(7e-6)
    assert limits(ours=4e-7, summing=3e-5) == pytest.approx(6.3e-5)
    assert limits(dtype="bfloat16", ours=2e-3) == pytest.approx(3e-2)
    assert limits(dtype="bfloat16", ours=5e-3) == pytest.approx(5e-2)
    # where nothing is exact, both sides err by sums of so many terms
    assert limits(tokens=8192, reference="float32") == pytest.approx(3e-6 + 10 * 2.16e-5, rel=1e-2)


def gradient_error(exact, ours):
    """The error of a gradient beside one of 1, by the numbers of both."""
    output = torch.ones(1, 1, 1, 1)
    given = [
        Values(output, {"q": torch.ones(3), "weight": torch.full((3,), size)})
        for size in (ours, exact)
    ]
    return deviations(*given, replace(USUAL_ATTEMPT, tokens=1), None)["dweight"]


def test_a_gradient_whose_terms_all_cancel_is_held_to_the_largest():
    """Of a softmax over one key the gradient is nothing; kernels give what rounding leaves."""
    assert gradient_error(exact=0.0, ours=8e-7) == pytest.approx(8e-7)
    assert gradient_error(exact=1e-5, ours=1e-5 + 8e-7) == pytest.approx(8e-6, rel=0.01)
    assert gradient_error(exact=1.0, ours=1.5) == pytest.approx(0.5)


def test_one_token_accuses_no_own_form_whose_gradients_vanish():
    for trial in own_forms("synthesizer"):
        single = [attempt for attempt in of_form(trial) if attempt.tokens == 1]
        assert single
        assert [row for row in panel(trial, single) if not row.passes] == [], trial.form


def test_sums_of_logs_of_decays_lose_what_float32_loses():
    g = -torch.rand(1, 1, 300, dtype=torch.float64) * 10
    whole, chunks = differences(g, 300), differences(g, 32)
    assert 1e-6 < (whole - g).abs().max() < 1e-3
    assert (chunks - g).abs().max() < (whole - g).abs().max() / 3
    small = {"q": g, "k": g, "v": g, "g": g}
    assert torch.equal(summed(small, {})["g"], whole), "all pairs may be compared"
    assert torch.equal(summed({**small, "beta": g}, {})["g"], differences(g, 128))
    fixed = {**small, "g": g[:, :, :1]}
    assert torch.equal(summed(fixed, {})["g"], g[:, :, :1])
