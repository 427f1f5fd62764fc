"""Every form that goes in parts, with caches so small that there are at least three of them.

What it computes must be what the form `eager` computes at once, outputs and gradients.
"""

import ast
from collections import Counter
from functools import wraps
from pathlib import Path

import pytest
import torch

import attnbench
from attnbench import attention as at
from attnbench.attention.checks.equations import by_reference, errors, in_float64, values
from attnbench.attention.checks.training import SAME
from attnbench.attention.checks.trial import same_draws, some_padding, tokens, trials
from attnbench.attention.kernels import convolution, decays, primitives, recurrence, selection
from attnbench.mechanisms import (
    adaptively_sparse,
    etc,
    indexed,
    performer,
    reformer,
    sliding_window,
    smart_bird,
    transformer_xl,
)
from attnbench.mechanisms.catalogue import registry

FEW = 64  # logits at once, and elements of a piece
SIZES = (
    (decays, "BLOCK", 3),
    (decays, "FADING_BLOCK", 16),
    (decays, "FADING_GROUP", 4),
    (convolution, "BLOCK", 8),
    (transformer_xl, "PIECE", FEW),
    (performer.Chunked, "block", 8),
    (indexed, "QUERIES", 16),
    (etc, "BLOCK", 8),
    (sliding_window, "BLOCK", 8),
)
READERS = (primitives, recurrence, selection, decays, at)  # of `logits_at_once`

# what is called, or gives an item, for each part of a forward pass; and the forms that have it
CHUNKED = ("gated_delta_net", "gated_linear", "kimi_delta", "lightning", "mamba2", "retention")


def forms(names, *forms):
    """Series of all these mechanisms in all these forms."""
    return {f"{name}:{form}" for name in names for form in forms}


MADE = (
    (recurrence, "by_part", forms((*CHUNKED, "rwkv7"), "chunked")),
    (convolution, "preceded", forms(("gated_delta_net", "kimi_delta", "mamba2"), "eager")),
    (primitives, "parts", {"indexed:sdpa"}),
    (selection, "top_blocks", forms(("indexed", "moba", "native_sparse"), "eager", "blocked")),
    (decays, "write_fading", {"forgetting:sdpa"}),
    (
        transformer_xl,
        "mask_",
        forms(("transformer_xl", "compressive_transformer"), "eager", "recomputed") | {"etc:eager"},
    ),
    (adaptively_sparse, "pieces", {"adaptively_sparse:chunked"}),
    (reformer, "groups", {"reformer:chunked"}),
    (performer, "cut", {"performer:chunked"}),
    (smart_bird.SmartBird, "allowed", {"smart_bird:eager"}),
)
NAMES = {series.partition(":")[0] for _, _, having in MADE for series in having}
LENGTH = 66

IN_PARTS = [
    pytest.param(trial, owner, name, id=f"{mechanism}-{label}")
    for mechanism in sorted(NAMES)
    for label, trial in trials(registry.card(mechanism))
    for owner, name, having in MADE
    if f"{mechanism}:{trial.form}" in having and label[0] == "0"
]


@pytest.fixture
def small(monkeypatch):
    """Makes caches small, and counts what is called, or yielded, under one name."""

    def shrink(owner, name):
        found, original = Counter(), getattr(owner, name)

        @wraps(original)
        def counting(*args, **options):
            result = original(*args, **options)
            if hasattr(result, "__next__"):
                return (item for item in result if not found.update([name]))
            found.update([name])
            return result

        for module in READERS:
            monkeypatch.setattr(module, "logits_at_once", lambda device: FEW)
        for module, constant, size in SIZES:
            monkeypatch.setattr(module, constant, size)
        monkeypatch.setattr(owner, name, counting)
        return found

    return shrink


def evaluated(module, w, mask):
    """Outputs and gradients, and what was drawn at random or chosen."""
    x = tokens(w).requires_grad_()
    y = same_draws(module, x, mask)
    found = values({"x": x, **dict(module.named_parameters())}, y, mask)
    return found, [in_float64(module.draws(index)) for index in range(w.batch)]


def padding_at_both_ends(w):
    """Sequence 0 is all real; padding also comes before tokens that could read it."""
    mask = some_padding(w)
    mask[1:, : w.seq_len // 5] = False
    return mask


@pytest.mark.parametrize(
    "masked",
    [pytest.param(False, id="", marks=pytest.mark.long), pytest.param(True, id="padded")],
)
@pytest.mark.parametrize(("trial", "owner", "name"), IN_PARTS)
def test_many_parts_are_what_one_is(trial, owner, name, masked, small):
    w = trial.workload(LENGTH)
    mask = padding_at_both_ends(w) if masked else None
    expected, whole = evaluated(trial.build(w, form="eager"), w, mask)
    module, counts = trial.build(w), small(owner, name)
    with torch.no_grad():
        y = same_draws(module, tokens(w), mask)
    assert counts[name] >= 3
    ours, drawn = evaluated(module, w, mask)
    if str(drawn) != str(whole):
        expected = by_reference(trial, module, w, mask, drawn)
    for what, error in errors(ours, expected).items():
        assert error <= SAME, f"{what} differs by {error:.1e}"
    if str(drawn) == str([in_float64(module.draws(index)) for index in range(w.batch)]):
        real = slice(None) if mask is None else mask
        assert (y[real] - ours.output).abs().max() <= SAME * ours.output.abs().max()


def test_whatever_asks_how_many_logits_to_compute_at_once_is_made_small():
    root = Path(attnbench.__file__).parent
    asking = {
        path.stem
        for room in ("attention", "mechanisms")
        for path in (root / room).glob("*.py")
        if "logits_at_once(" in path.read_text()
    }
    known = {owner.__name__.rpartition(".")[2] for owner, _, _ in MADE} | {"smart_bird"}
    assert asking <= known | {"decays", "primitives"}


def test_every_backward_pass_by_hand_has_the_base_that_makes_it_a_good_citizen():
    root = Path(attnbench.__file__).parent
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            bases = map(ast.unparse, node.bases) if isinstance(node, ast.ClassDef) else ()
            if any(base.endswith("autograd.Function") for base in bases):
                assert (path.name, node.name) == ("autograd.py", "Written")
