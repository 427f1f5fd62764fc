"""Windows by flex_attention: their blocks against torch's, and their sums against `eager`.

What flex_attention is documented to compute stands in for it; the last test compiles it, in cases
that are marked `long` and `faults`.
"""

from dataclasses import replace

import pytest
import torch
from torch._dynamo.utils import counters
from torch.nn.attention.flex_attention import create_block_mask

from attnbench.attention.checks.trial import same_draws, some_padding, tokens, workload
from attnbench.attention.kernels import flex
from attnbench.attention.kernels.flex import BLOCK
from attnbench.devices.finding import find
from attnbench.devices.kinds.cuda import Cuda
from attnbench.mechanisms import (
    bigbird,
    image_transformer,
    indexed,
    local,
    longformer,
    moba,
    native_sparse,
    transformer,
)
from attnbench.mechanisms.catalogue import registry
from attnbench.records import Mode
from tests.exemptions import WIDER

# torch warns of its own code while it compiles
WARNINGS = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
pytestmark = [WARNINGS, pytest.mark.usefixtures("afresh")]

NO_COMPILER = find("cpu").cannot_compile()
LENGTHS = (1, 23, 128, 300, 515)
USUAL = [pytest.param(n, marks=() if n in (23, 300) else pytest.mark.long) for n in LENGTHS]
CONFIGS = {
    "transformer": (transformer.Config(),),
    "local": (
        local.Config(block=5),
        local.Config(block=20),
        local.Config(block=128),
        local.Config(block=200),
    ),
    "longformer": (
        longformer.Config(window=6, global_tokens=2),
        longformer.Config(window=512, global_tokens=0, bias=True),
        longformer.Config(window=260, global_tokens=130, share_global=True),
        longformer.Config(window=70, dilation=3),
    ),
    "bigbird": (
        bigbird.Config(block=8, global_tokens=16, random_tokens=16),
        bigbird.Config(block=7, global_tokens=0, random_tokens=21),
        bigbird.Config(block=64, global_tokens=128, random_tokens=0),
        bigbird.Config(block=150, global_tokens=3, random_tokens=150),
    ),
    "image_transformer": (
        image_transformer.Config(block=8, memory=8),
        image_transformer.Config(block=128, memory=256),
        image_transformer.Config(block=100, memory=30),
        image_transformer.Config(layout="2d", rows=2, columns=3, above=3, beside=2),
        image_transformer.Config(layout="2d"),
        image_transformer.Config(layout="2d", across=3, above=0),
    ),
    "indexed": (
        indexed.Config(block=7, budget=21, kv_heads=2),
        indexed.Config(block=96, budget=192, score="each", pool="max", kv_heads=1),
        indexed.Config(block=16, budget=48, kv_rank=8),
    ),
    "moba": (moba.Config(block=7), moba.Config(block=64, blocks=2), moba.Config(block=256)),
    "native_sparse": (
        native_sparse.Config(block=4, blocks=4, window=6, kv_heads=2),
        native_sparse.Config(block=96, blocks=3, kv_heads=1),
    ),
}
CAUSAL = {"bigbird": (False,), "indexed": (True,), "moba": (True,), "native_sparse": (True,)}


def every():
    for name, configs in CONFIGS.items():
        for index, config in enumerate(configs):
            for causal in CAUSAL.get(name, (False, True)):
                yield pytest.param(name, config, causal, id=f"{name}-{index}" + "-causal" * causal)


CASES = [*every()]
COMPILED = ("longformer-0-causal", "bigbird-0")


def as_documented(q, k, v, block_mask, enable_gqa=False):
    """Softmax over all keys of full blocks, and those of partial ones that the mask allows."""
    B, H, N = q.shape[:3]
    if enable_gqa:
        k, v = (t.repeat_interleave(H // t.shape[1], 1) for t in (k, v))
    b, h, i, j = (torch.arange(size) for size in (B, H, N, N))
    allowed = block_mask.mask_mod(b.view(-1, 1, 1, 1), h.view(-1, 1, 1), i[:, None], j)
    part = spread(block_mask.kv_num_blocks, block_mask.kv_indices, N)
    full = torch.zeros_like(part)
    if block_mask.full_kv_num_blocks is not None:
        full = spread(block_mask.full_kv_num_blocks, block_mask.full_kv_indices, N)
    assert not (part & full).any(), "a block is listed twice"
    allowed = allowed & part | full
    logits = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~allowed, -torch.inf)
    return logits.softmax(-1).nan_to_num(0) @ v


def spread(count, order, N):
    """Which pairs of tokens lie in the blocks of a list, [B, H, N, N]."""
    listed = torch.arange(order.shape[-1]) < count[..., None]
    blocks = torch.zeros(order.shape, dtype=torch.bool).scatter(-1, order.long(), listed)
    tokens = blocks.repeat_interleave(BLOCK, -1).repeat_interleave(BLOCK, -2)
    return tokens[..., :N, :N]


def pair(name, config, w, dtype):
    """The form `flex`, and `eager` with the same parameters."""
    card = registry.card(name)
    torch.manual_seed(0)
    module = card.forms["flex"](config, w).to(dtype).eval()
    plain = card.forms["eager"](config, w).to(dtype).eval()
    plain.load_state_dict(module.state_dict())
    return module, plain


@pytest.mark.parametrize("N", USUAL)
@pytest.mark.parametrize(("name", "config", "causal"), CASES)
def test_no_block_is_forgotten_and_a_full_one_has_every_pair(name, config, causal, N):
    w = workload(N, 1, causal)
    ours = registry.card(name).forms["flex"].visible(config, w)
    theirs = create_block_mask(ours.allowed, None, w.heads, N, N, device="cpu").to_dense()[0].bool()
    h, i, n = torch.arange(w.heads).view(-1, 1, 1), torch.arange(N), len(theirs[0])
    pad = n * BLOCK - N
    pairs = ours.allowed(torch.tensor(0), h, i[:, None], i).expand(w.heads, N, N)
    whole = torch.nn.functional.pad(pairs, (0, pad, 0, pad)).unflatten(1, (n, BLOCK))
    whole = whole.unflatten(3, (n, BLOCK)).transpose(2, 3).flatten(3).all(-1)  # [H, n, n]
    assert (ours.used >= theirs).all()
    assert (ours.full <= whole).all()
    line = name == "image_transformer" and config.layout == "1d"
    if line or name in ("local", "transformer"):  # each query reads an interval
        assert (ours.used == theirs).all()
        assert (ours.full == whole).all()
    work = ours.flops(w) // (4 * w.width)
    assert work >= pairs.sum() / w.heads


@pytest.mark.parametrize("N", [1, 23, 300])
@pytest.mark.parametrize(("name", "config", "causal"), CASES)
@pytest.mark.parametrize("padded", [pytest.param(False, marks=pytest.mark.long), True])
def test_its_output_is_that_of_eager(name, config, causal, padded, N, monkeypatch):
    monkeypatch.setattr(flex, "kernel", lambda: as_documented)
    w = workload(N, 2, causal)
    module, plain = pair(name, config, w, torch.float64)
    mask = some_padding(w) if padded else None
    with torch.no_grad():
        y = same_draws(module, tokens(w), mask)
    expected = same_draws(plain, tokens(w), mask)
    real = torch.ones(2, N, dtype=torch.bool) if mask is None else mask
    torch.testing.assert_close(y[real], expected[real], rtol=1e-9, atol=1e-11)
    assert y.isfinite().all()


@pytest.mark.parametrize("name", CONFIGS)
def test_where_it_cannot_run_it_says_why(name):
    card, w = registry.card(name), replace(workload(64, 1, False), dtype="float32")
    refusals = {
        "torch's flex_attention has no backward on a CPU": replace(w, mode=Mode.TRAINING),
        "torch's flex_attention has no float64 kernel": replace(w, dtype="float64"),
    }
    for reason, refused in refusals.items():
        assert card.refusal("flex", card.config(), refused) == reason
    assert card.refusal("flex", card.config(), w) == (NO_COMPILER or None)


@pytest.mark.parametrize("name", ["indexed", "moba", "native_sparse"])
def test_on_a_gpu_it_reads_chosen_blocks_where_it_can(name, monkeypatch):
    monkeypatch.setattr(Cuda, "cannot_compile", lambda self: "")
    card, w = registry.card(name), replace(workload(8192, 1, True), width=64, dtype="float32")
    w = replace(w, heads=4, device="cuda")
    others = (replace(w, device="cpu"), replace(w, mode=Mode.DECODE), replace(w, dtype="float64"))
    assert card.default_form(card.config(), w) == "flex"
    assert "flex" not in {card.default_form(card.config(), other) for other in others}


@pytest.mark.skipif(bool(NO_COMPILER), reason=NO_COMPILER)
@pytest.mark.parametrize(
    ("name", "config", "causal"),
    [
        pytest.param(*case.values, id=case.id, marks=mark)
        for case in CASES
        for mark in [pytest.mark.long if case.id in COMPILED else pytest.mark.faults]
    ],
)
def test_the_generated_kernel_computes_the_same(name, config, causal):
    assert name not in WIDER
    w = replace(workload(300, 2, causal), dtype="float32")
    module, plain = pair(name, config, w, torch.float32)
    x = tokens(w, dtype=torch.float32)
    for mask in (None, some_padding(w)):
        with torch.no_grad():
            y = module(x, mask)
        expected = plain.double()(x.double(), mask)
        real = torch.ones(2, 300, dtype=torch.bool) if mask is None else mask
        error = (y[real] - expected[real]).abs().max() / expected.abs().max()
        assert error < registry.card(name).tolerance.float32
        assert y.isfinite().all()


@pytest.mark.long
@pytest.mark.skipif(bool(NO_COMPILER), reason=NO_COMPILER)
@pytest.mark.parametrize("name", ["longformer", "moba"])
def test_the_next_passes_compile_nothing(name):
    """Although each has a mask, or a choice, of its own."""
    w = replace(workload(300, 2, True), dtype="float32")
    module, _ = pair(name, CONFIGS[name][1], w, torch.float32)
    compiled = []
    for _ in range(4):
        with torch.no_grad():
            module(torch.randn(2, 300, w.width), some_padding(w))
        compiled.append(counters["stats"]["unique_graphs"])
    assert compiled[0] == compiled[-1] > 0
