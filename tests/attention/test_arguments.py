"""By which names a function takes tensors and masks, and how dialects follow from one another."""

import pytest
import torch
from torch.testing import assert_close

from attnbench.attention.arguments import (
    CONVENTIONS,
    DIALECTS,
    MASKS,
    accepted,
    bound,
    positional,
)

QKV = ("q", "k", "v")
SIZES = {"B": 2, "H": 3, "N": 5, "d": 4}


def core_of(dialect):
    """Tensors of a core of these names, in float64, and what its parameters are called."""
    generator = torch.Generator().manual_seed(0)
    wide = tuple(SIZES.values())
    drawn = {
        name: torch.randn(wide, generator=generator, dtype=torch.float64)
        for name in dialect.core - {"g", "f"}
    }
    fading = torch.rand(wide[:3], generator=generator, dtype=torch.float64)
    by_channel = {"w", "gk"} & {*dialect.taken}
    g = -torch.rand(wide, generator=generator, dtype=torch.float64) if by_channel else -fading - 0.1
    return {**drawn, **({"g": g} if "g" in dialect.core else {"f": fading})}


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: " ".join(dialect.taken))
def test_the_tensors_of_a_core_come_back_from_what_a_function_takes(dialect):
    core = core_of(dialect)
    learned = {"learned b": torch.linspace(-1, 1, SIZES["H"], dtype=torch.float64)}
    taken = dialect.of_core({**learned, **core})
    assert {*taken} == {*dialect.taken}
    again = dialect.to_core({**learned, **taken})
    assert {*again} == dialect.core
    for name, tensor in core.items():
        assert_close(again[name], tensor, rtol=1e-9, atol=1e-9)


def test_steps_are_above_zero_and_fade_as_the_core_does():
    dialect = DIALECTS[0]
    core = core_of(dialect)
    taken = dialect.of_core(core)
    assert (taken["dt"] > 0).all()
    assert (taken["A"] < 0).all()
    assert_close(taken["A"][:, None] * taken["dt"], core["g"])


def takes(*names, any_name=False):
    return bound(dict.fromkeys(names, True), any_name, QKV)


@pytest.mark.parametrize(
    ("names", "parameters", "mask"),
    [
        (QKV, {"q": "q", "k": "k", "v": "v"}, ""),
        (("query", "keys", "V"), {"q": "query", "k": "keys", "v": "V"}, ""),
        (("q", "v", "attn_mask"), {"q": "q", "v": "v"}, "attn_mask"),
        (("q", "query", "k", "v", "mask"), {"q": "q", "k": "k", "v": "v"}, "mask"),
    ],
)
def test_usual_names_of_a_tensor_mean_it_and_its_own_name_comes_first(names, parameters, mask):
    binding = takes(*names)
    assert (dict(binding.parameters), binding.mask) == (parameters, mask)
    assert binding.untaken == tuple(name for name in QKV if name not in parameters)


def test_a_function_of_any_names_is_given_those_of_the_core():
    assert dict(takes(any_name=True).parameters) == {name: name for name in QKV}


def test_a_usual_name_that_is_another_tensor_of_the_core_means_that_one():
    """`b` is usual for β, and a tensor of RWKV-7's own."""
    names = ("g", "q", "k", "v", "b", "r")
    assert bound(dict.fromkeys(names, True), False, names).parameters["b"] == "b"
    delta = bound(dict.fromkeys(("q", "k", "v", "b"), True), False, (*QKV, "beta"))
    assert delta.parameters["beta"] == "b"


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: " ".join(dialect.taken))
def test_a_dialect_is_known_by_the_names_that_it_needs(dialect):
    names = tuple(sorted(dialect.core))
    found = bound(dict.fromkeys(dialect.taken, True), False, names)
    assert found.dialect is dialect
    assert {*found.parameters} == {*dialect.taken}
    plain = bound(dict.fromkeys(names, True), False, names)
    assert plain.dialect.taken == names


def test_parameters_are_those_that_can_be_given_by_name():
    def function(a, /, b, *more, c=3, **others):
        """Takes what it is given."""

    assert accepted(function) == ({"b": True, "c": False}, True)
    assert accepted(lambda b: b) == ({"b": True}, False)
    assert positional(function, {"b"}) == ("a",)
    assert positional(function, ()) == ("a", "b")
    assert accepted(type) == ({}, True)


@pytest.mark.parametrize("name", CONVENTIONS)
def test_a_mask_of_each_convention_tells_real_tokens_from_padding(name):
    mask = torch.tensor([[True, True, False], [True, True, True]])
    found = CONVENTIONS[name](mask, torch.float32)
    shape = (2, 1, 1, 3) if name in ("keys", "scores") else (2, 3)
    assert found.shape == shape
    flat = found.reshape(2, 3)
    lowest = torch.finfo(torch.float32).min
    expected = {
        "real": mask,
        "keys": mask,
        "padding": ~mask,
        "scores": torch.where(mask, 0.0, lowest),
    }[name]
    assert torch.equal(flat, expected)


def test_scores_of_a_whole_mask_hide_what_comes_later():
    whole = torch.ones(1, 3, 3, dtype=torch.bool).tril()
    scores = torch.zeros(1, 1, 3, 3) + CONVENTIONS["scores"](whole, torch.float32)
    assert scores.softmax(-1)[0, 0].tolist() == [
        [1, 0, 0],
        [0.5, 0.5, 0],
        [pytest.approx(1 / 3)] * 3,
    ]
    assert {name for names in MASKS.values() for name in names} <= {*CONVENTIONS}
