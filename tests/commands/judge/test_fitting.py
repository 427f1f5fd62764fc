"""How a user's function is called as a mechanism: its layout, its heads and its mask."""

from types import SimpleNamespace

import pytest

from attnbench.attention.contract import Unusable
from attnbench.commands.judge.fitting import fit_kernel, other_sizes, unusable_text, way_text
from attnbench.mechanisms.catalogue.registry import card

KERNELS = """
import torch
from torch.nn.functional import scaled_dot_product_attention as attend


def plain(q, k, v):
    return attend(q, k, v)


def swapped(q, k, v, causal=False):
    found = attend(*(x.transpose(1, 2) for x in (q, k, v)), is_causal=causal)
    return found.transpose(1, 2)


def wide(q, k, v):
    if q.shape[-1] != 64:
        raise ValueError(f"heads of {q.shape[-1]}")
    return attend(q, k, v)


def masked(q, k, v, attn_mask):
    return attend(q, k, v, attn_mask)


def masked_in_blocks(q, k, v, mask=None):
    if q.shape[2] % 64:
        raise ValueError("N is no multiple of 64")
    return attend(q, k, v, None if mask is None else mask[:, None, None])


def unmasked(q, k, v, mask=None):
    if mask is not None:
        raise NotImplementedError("masks")
    return attend(q, k, v)


def strange(q, k, v, temperature):
    return attend(q, k, v)


def broken(q, k, v):
    raise ValueError("it broke")
"""


@pytest.fixture(scope="module")
def fit(tmp_path_factory):
    """How a function of the file is called."""
    file = tmp_path_factory.mktemp("kernels") / "kernels.py"
    file.write_text(KERNELS)
    made = card(f"transformer:{file}")

    def of(form, options=(), causal=None, chosen=False):
        sizes = {"width": 32, "heads": 4, "causal": causal, "chosen": chosen}
        return fit_kernel(made, form, dict(options), "float32", "cpu", **sizes)

    return of


def test_a_function_is_called_in_the_layout_in_which_it_errs_least(fit):
    plain, swapped = fit("plain", causal=False), fit("swapped", causal=False)
    assert (plain.options["axes"], swapped.options["axes"]) == ("bhnd", "bnhd")
    assert next(iter(plain.ways.values())) < 1e-5
    assert [*plain.worse_ways] == ["bnhd"]
    assert (plain.width, plain.heads, plain.head_width, plain.refused) == (32, 4, 8, {})


def test_a_layout_that_was_given_is_not_varied(fit):
    assert [*fit("plain", {"axes": "bhnd"}, causal=False).ways] == ["bhnd"]


def test_a_function_that_takes_causal_is_tried_with_both_values(fit):
    assert fit("swapped").modes == (False, True)
    assert fit("swapped", causal=True).modes == (True,)
    assert fit("plain").modes == (False,), "by its errors it is not"
    assert "causal" in fit("plain").untaken
    assert "causal" not in fit("swapped").untaken


def test_heads_that_it_refuses_are_told_and_others_are_tried_unless_they_were_chosen(fit):
    found = fit("wide", causal=False)
    assert found.head_width == 64
    assert found.refused["8"] == "ValueError: heads of 8"
    with pytest.raises(Unusable, match="it gives nothing to compare: ValueError: heads of 8"):
        fit("wide", causal=False, chosen=True)


def test_what_a_mask_means_is_found_by_its_name_and_its_errors(fit):
    found = fit("masked", causal=False)
    assert found.mask.startswith("attn_mask (")
    assert found.options["mask_as"] in found.mask


def test_what_a_mask_means_is_found_at_whole_blocks_where_no_other_length_is_taken(fit):
    found = fit("masked_in_blocks", causal=False)
    assert found.mask.startswith("mask (")
    assert not found.uncompared_mask
    masked = {attempt.tokens for attempt in found.attempts if attempt.masked}
    assert masked == {100, 512}


def test_a_mask_that_was_never_compared_is_given_no_meaning(fit):
    found = fit("unmasked", causal=False)
    assert (found.mask, found.uncompared_mask) == ("", "mask")
    assert "mask_as" not in found.options


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ("nothing", "there is no function 'nothing'; the file has .*plain"),
        ("strange", "it takes temperature, which nothing gives; it may take q, k, v"),
        ("broken", "it gives nothing to compare: ValueError: it broke"),
    ],
)
def test_what_cannot_be_called_is_refused_with_the_reason(fit, form, said):
    with pytest.raises(Unusable, match=said):
        fit(form, causal=False, chosen=True)


def test_other_heads_keep_the_width_where_it_can_be_divided():
    sizes = [*other_sizes(96)]
    assert all(width % heads == 0 for width, heads in sizes)
    assert (96, 3) in sizes
    assert (4 * 64, 4) in sizes


def test_ways_are_named_and_reasons_told_by_layout_where_they_differ():
    def way(axes, causal=False, scales=False):
        return SimpleNamespace(config=SimpleNamespace(axes=axes, scales=scales), causal=causal)

    assert way_text(way("bnhd", causal=True)) == "bnhd, causal"
    assert way_text(way("bnhd", scales=True)) == "bnhd, scaling q"
    ways = [(0.0, way("bnhd"), "no room"), (0.0, way("bhnd"), "it broke")]
    assert unusable_text(ways[:1] * 2) == "it gives nothing to compare: no room"
    assert unusable_text(ways) == (
        "it gives nothing to compare: with bnhd no room; with bhnd it broke"
    )
