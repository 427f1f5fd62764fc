"""The innermost part of a form, by the names of its tensors."""

import pytest
import torch
from torch.testing import assert_close

from attnbench.attention.checks.trial import Trial, core_inputs, tokens
from attnbench.attention.core import LAYER, computed, tensor_names, usual
from attnbench.mechanisms.catalogue import registry
from attnbench.mechanisms.transformer import Transformer


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("transformer", ("q", "k", "v")),
        ("forgetting", ("q", "k", "v", "f")),
        ("kimi_delta", ("g", "q", "k", "v", "beta")),
        ("mamba2", ("g", "q", "k", "v")),
        ("fnet", ()),
    ],
)
def test_a_core_has_the_tensors_of_its_rule_or_of_attend(name, names):
    assert tensor_names(registry.card(name).forms["eager"]) == names


def test_tensors_that_have_no_names_are_none():
    class Star(Transformer):
        def attend(self, *inputs):
            return super().attend(*inputs)

    assert tensor_names(Star) == ()


def built(name):
    card = registry.card(name)
    trial = Trial(card, card.config(), "eager", causal=True)
    return trial.build(trial.workload(9)), trial.workload(9)


@pytest.mark.parametrize("name", ["transformer", "kimi_delta", "mamba2"])
def test_what_reaches_the_core_gives_the_output_of_the_core(name):
    module, w = built(name)
    names = tensor_names(type(module))
    inputs = core_inputs(module, w)
    with torch.no_grad():
        taken = usual(module, names, inputs)
        expected = module.attend(*inputs, None)
        found = computed(module, taken)
    assert (*taken,) == names
    if name != "mamba2":  # which adds its skip to what its rule gives
        assert_close(found, expected)
    assert found.shape[2] == 9
    assert "rule" not in vars(module), "it is as it was"


def test_of_a_layer_x_gives_the_whole_output():
    module, w = built("retention")
    x = tokens(w)
    assert usual(module, LAYER, [x]) == {"x": x}
    with torch.no_grad():
        assert_close(computed(module, {"x": x}), module(x))


def test_a_rule_computes_in_no_narrow_type_and_gives_the_type_it_was_given():
    module, w = built("gated_linear")
    with torch.no_grad():
        taken = usual(module, tensor_names(type(module)), core_inputs(module, w))
        wide = computed(module, {name: tensor.float() for name, tensor in taken.items()})
        narrow = computed(module, {name: tensor.bfloat16() for name, tensor in taken.items()})
    assert narrow.dtype is torch.bfloat16
    rounded = {name: tensor.bfloat16().float() for name, tensor in taken.items()}
    with torch.no_grad():
        assert torch.equal(narrow, computed(module, rounded).bfloat16())
    assert wide.dtype is torch.float32
