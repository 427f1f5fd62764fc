"""Padding before the tokens takes the place of no chosen block and of no neighbour."""

import pytest
import torch

from attnbench.mechanisms.catalogue.registry import built_in, card
from attnbench.records import Causality
from tests.mechanisms.building import build, workload

BLOCK = 4
CHOOSING = [
    ("indexed", {"block": 1, "budget": 5}),
    ("indexed", {"block": BLOCK, "budget": 3 * BLOCK}),
    ("indexed", {"block": BLOCK, "budget": 3 * BLOCK, "score": "each", "pool": "max"}),
    ("mamba2", {"head_width": 8, "state": 6, "chunk": 16, "bias": True}),
    ("moba", {"block": BLOCK, "blocks": 3}),
    ("native_sparse", {"block": BLOCK, "blocks": 4, "window": 6}),
    ("star_transformer", {"iterations": 2}),
]


@pytest.mark.parametrize(
    ("mechanism", "form", "options"),
    [
        (name, form, options)
        for name, options in CHOOSING
        for form, module in card(name).forms.items()
        if not module.compiles
    ],
)
def test_outputs_are_those_without_the_padding(mechanism, form, options):
    tested, before = card(mechanism), 3 * BLOCK
    sizes = {"seq_len": 40, "causal": tested.causality is not Causality.NEVER}
    if tested.refusal(form, tested.configure(options), workload(mechanism, **sizes, padding=0.3)):
        pytest.skip("the form does not take padding or these options")
    module = build(mechanism, form, **sizes, **options).eval()
    x, mask = torch.randn(2, 40, 16).double(), torch.ones(2, 40, dtype=torch.bool)
    mask[:, :before] = False
    alone = module(x[:, before:])
    torch.testing.assert_close(module(x, mask)[:, before:], alone)


@pytest.mark.parametrize(
    "dtype",
    [pytest.param(torch.float32, marks=pytest.mark.long), torch.bfloat16],
    ids=str,
)
@pytest.mark.parametrize(
    ("mechanism", "form"),
    [
        (name, form)
        for name in sorted(built_in())
        for form, module in card(name).forms.items()
        if not (module.compiles or module.package)
    ],
)
def test_heads_of_a_usual_width_train_behind_padding(mechanism, form, dtype):
    """A head of 64: products of what hides padding with what reads it may not overflow.

    One sequence begins with padding, one is nothing else.
    """
    tested = card(mechanism)
    causal = tested.causality is not Causality.NEVER
    sizes = {"seq_len": 150, "width": 128, "heads": 2, "causal": causal}
    if tested.refusal(form, tested.configure({}), workload(mechanism, **sizes, padding=0.3)):
        pytest.skip("the form does not take padding or these sizes")
    module = build(mechanism, form, **sizes).to(dtype)
    x = torch.randn(2, 150, 128, generator=torch.Generator().manual_seed(3)).to(dtype)
    mask = torch.ones(2, 150, dtype=torch.bool)
    mask[0, :70] = False
    mask[1] = False
    y = module(x.requires_grad_(), mask)
    (y * mask[..., None]).float().square().sum().backward()
    assert y.isfinite().all()
    gradients = {"x": x.grad, **{name: p.grad for name, p in module.named_parameters()}}
    lost = [name for name, g in gradients.items() if g is not None and not g.isfinite().all()]
    assert lost == []
