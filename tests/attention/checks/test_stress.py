"""Inputs that break kernels: what each changes, and what it leaves."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import cosine_similarity, normalize

from attnbench.attention.checks.stress import NAMED, STRESSES, STRONG, alike, random, zeros

SHAPE = (2, 3, 40, 8)
generator = torch.Generator().manual_seed(0)
CORE = {name: torch.randn(SHAPE, generator=generator).double() for name in ("q", "k", "v")}
CORE["g"] = -torch.rand(SHAPE[:3], generator=generator).double()
CORE["beta"] = torch.rand(SHAPE[:3], generator=generator).double()


def changed(name):
    return NAMED[name].changed(CORE)


@pytest.mark.parametrize("stress", STRESSES, ids=lambda stress: stress.name)
def test_what_a_stress_does_not_name_stays_the_same_object(stress):
    found = stress.changed(CORE)
    assert found.keys() == CORE.keys()
    for name, tensor in found.items():
        assert (tensor is CORE[name]) is (name not in stress.changes)
        assert (tensor.shape, tensor.dtype) == (CORE[name].shape, CORE[name].dtype)
        assert tensor.isfinite().all()


@given(st.floats(0.5, 0.999))
def test_alike_keys_have_a_common_part_and_keep_their_lengths(share):
    k = CORE["k"]
    found = alike(share)["k"](k)
    torch.testing.assert_close(found.norm(dim=-1), k.norm(dim=-1))
    common = normalize(k[:, :, :1], dim=-1)
    # the rest of a key is normal, and has its length
    near = cosine_similarity(found, common.expand_as(found), dim=-1).mean()
    assert near > share**0.5 - 0.25


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("decays near 1", -0.011, -0.99e-4),
        ("decays of 1e-12", STRONG - 1e-9, STRONG + 1e-9),
        ("decays from 1 to e^-316", -316.0, -1e-6),
    ],
)
def test_logs_of_decays_are_within_their_bounds(name, least, most):
    g = changed(name)["g"]
    assert least <= g.min()
    assert g.max() <= most
    if name == "decays from 1 to e^-316":
        assert len(g.unique()) == 5


def test_decays_that_no_token_has_for_itself_stay():
    fixed = {"g": -torch.ones(1, 3, 1)}
    assert torch.equal(NAMED["decays near 1"].changed(fixed)["g"], fixed["g"])


def test_half_of_the_tokens_are_zeros_and_the_last_head():
    x = zeros(CORE["q"])
    empty = (x == 0).all(-1)
    assert empty[:, -1].all()
    assert 0.3 < empty[:, :-1].double().mean() < 0.7
    assert torch.equal(x[~empty], CORE["q"][~empty])


def test_betas_are_the_ends_of_their_range():
    assert set(changed("beta 0 or 1")["beta"].unique().tolist()) == {0.0, 1.0}
    assert not changed("beta 0")["beta"].any()
    assert (changed("beta 1")["beta"] == 1).all()


def test_random_numbers_are_the_same_for_the_same_shape():
    assert torch.equal(random(CORE["q"]), random(CORE["k"]))
    assert 0 <= random(CORE["q"]).min() <= random(CORE["q"]).max() < 1
