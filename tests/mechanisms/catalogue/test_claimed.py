"""Functions of a user as forms of a mechanism: how they are given tensors, masks and options."""

from types import ModuleType

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention
from torch.testing import assert_close

from attnbench.attention.kernels.recurrence import delta_rule
from attnbench.errors import UnknownMechanism
from attnbench.mechanisms.catalogue.claimed import NO_STEPS, claimed
from attnbench.mechanisms.catalogue.registry import card
from attnbench.records import Level, Workload

W = Workload(batch=2, seq_len=12, width=16, heads=4, level=Level.ATTENTION)


def softmax(q, k, v, is_causal=False, attn_mask=None):
    return scaled_dot_product_attention(q, k, v, attn_mask, is_causal=is_causal)


def of(mechanism, **functions):
    module = ModuleType("mine")
    vars(module).update(functions)
    return claimed(card(mechanism), module, f"{mechanism}:mine.py")


def built(function, mechanism="transformer", w=W, **options):
    """A function's form, and the mechanism's `eager` with the same parameters."""
    own = of(mechanism, it=function)
    config = own.configure(options)
    torch.manual_seed(0)
    eager = card(mechanism).forms["eager"](card(mechanism).config(), w)
    form = own.forms["it"](config, w)
    form.load_state_dict(eager.state_dict())
    return form, eager


def test_each_public_function_is_a_form_and_nothing_else_is():
    own = of("transformer", first=softmax, second=softmax, _hidden=softmax, Kind=dict, number=3)
    assert [*own.forms] == ["first", "second"]
    assert (own.default, own.no_decode_reason) == ("first", NO_STEPS)
    assert own.mechanism is not None
    assert own.eager is card("transformer").forms["eager"]


@pytest.mark.parametrize(
    ("mechanism", "functions", "said"),
    [
        ("fnet", {"f": softmax}, "the mechanism has no core whose tensors have names"),
        ("transformer", {"_f": softmax}, "the file has no public function"),
    ],
)
def test_a_file_or_a_mechanism_without_a_core_is_refused(mechanism, functions, said):
    with pytest.raises(UnknownMechanism, match=said):
        of(mechanism, **functions)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_a_function_computes_the_core_with_the_parameters_of_the_mechanism(causal, masked):
    w = Workload(**{**vars(W), "causal": causal})
    form, eager = built(softmax, w=w) if not (causal and masked) else built(whole_mask, w=w)
    x = torch.randn(2, 12, 16)
    mask = torch.arange(12).expand(2, -1) < torch.tensor([[12], [7]]) if masked else None
    assert_close(form(x, mask)[0], eager(x, mask)[0])
    assert_close(form(x, mask)[1, :7], eager(x, mask)[1, :7])


def whole_mask(q, k, v, attn_mask):
    """Of a causal mechanism a mask of scores has both."""
    return scaled_dot_product_attention(q, k, v, attn_mask)


def tokens_first(q, k, v):
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return scaled_dot_product_attention(q, k, v).transpose(1, 2), "its second output"


def test_axes_are_those_that_are_asked_for_and_of_a_tuple_the_first_output_counts():
    form, eager = built(tokens_first, axes="bnhd")
    x = torch.randn(2, 12, 16)
    assert_close(form(x), eager(x))
    core = Workload(**{**vars(W), "level": Level.CORE})
    shapes = type(form).core_inputs(form.config, core)
    assert shapes == ((2, 12, 4, 4),) * 3


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (lambda q, k, v, causal: v * causal, {"causal": False}),
        (lambda q, k, v, scale: v * scale, {"scale": 0.5}),
        (lambda q, k, v, scale=None: v, {}),
        (lambda q, k, v, heads: v * heads, {"heads": 4}),
        (lambda q, k, v, bias: v, {"bias": False}),
    ],
)
def test_what_a_function_takes_besides_tensors_it_is_given(function, found):
    """A scale only where it has no default, which is that of the mechanism."""
    form, _ = built(function)
    assert {name: read(form) for name, read in form.further.items()} == found
    assert form.unknown == ()


def test_what_nothing_gives_is_named():
    form, _ = built(lambda q, k, v, speed: v)
    assert form.unknown == ("speed",)


def test_parameters_of_the_core_are_given_by_their_names():
    form, _ = built(
        lambda q, k, v, g, b: v, "forgetting", w=Workload(**{**vars(W), "causal": True})
    )
    assert form.learned == {"b"}


def rule(q, k, v, g, beta):
    S = q.new_zeros(*q.shape[:2], q.shape[-1], v.shape[-1])
    return delta_rule(S, g, q, k, v, beta, None)[0]


@pytest.mark.parametrize(("least", "same"), [(None, True), (-1e9, True), (-1e-3, False)])
def test_the_rule_of_a_recurrence_is_a_functions_and_its_decays_are_bounded_if_asked(least, same):
    w = Workload(**{**vars(W), "causal": True})
    form, eager = built(rule, "gated_delta_net", w=w, lower_bound=least)
    x = torch.randn(2, 12, 16)
    assert torch.allclose(form(x), eager(x), atol=1e-5) is same


def test_what_a_function_changes_is_watched_and_its_type_is_kept():
    def changes(q, k, v):
        k.zero_()
        return v.double()

    form, _ = built(changes)
    tensors = dict(zip("qkv", torch.randn(3, 2, 4, 12, 4), strict=True))
    form.called(tensors)
    assert form.gave is torch.float64
    tensors = dict(zip("qkv", torch.randn(3, 2, 4, 12, 4), strict=True))
    form.watched = []
    form.called(tensors)
    assert form.overwritten == ("k",)


def test_an_output_that_is_no_tensor_is_refused():
    form, _ = built(lambda q, k, v: [v])
    with pytest.raises(TypeError, match="it gives a list, not a tensor"):
        form(torch.randn(2, 12, 16))


@pytest.mark.parametrize(
    ("mechanism", "options", "changes", "said"),
    [
        ("transformer", {"axes": "nbhd"}, {}, "axes is 'nbhd', not bhnd or bnhd"),
        ("transformer", {"mask_as": "odd"}, {}, "mask_as is 'odd', not real or padding or"),
        ("transformer", {}, {"padding": 0.5}, "it takes no mask"),
        ("gated_delta_net", {"lower_bound": 0.5}, {"causal": True}, "lower_bound is 0.5; logs of"),
    ],
)
def test_what_cannot_be_asked_of_a_function_is_refused(mechanism, options, changes, said):
    own = of(mechanism, it=lambda q, k, v: v)
    w = Workload(**{**vars(W), **changes})
    assert own.refusal("it", own.configure(options), w).startswith(said)
    assert own.refusal("it", own.config(), Workload(**{**vars(W), "causal": True})) is None
