"""Packages that depart from the equations, where what they share with them can be compared."""

import pytest
import torch
from torch.nn.functional import layer_norm

from attnbench.mechanisms import (
    compressive_transformer,
    memory_compressed,
    nystromformer,
    reformer,
    routing_transformer,
    set_transformer,
    sinkhorn,
)
from attnbench.mechanisms.catalogue.registry import card
from attnbench.records import Level, Workload
from tests.oracles import pair


def workload(seq_len, width=32, heads=4, **more):
    sizes = {"batch": 2, "seq_len": seq_len, "width": width, "heads": heads}
    return Workload(**{**sizes, "level": Level.ATTENTION, **more})


def tokens(w):
    return torch.randn(w.batch, w.seq_len, w.width, dtype=torch.float64)


@torch.no_grad()
def compressive(segment, memory, slots, rate):
    """Ours with the package's parameters, without the positions that it does not have."""
    names = {"segment": segment, "memory": memory, "compressed": slots, "rate": rate}
    config, w = compressive_transformer.Config(**names), workload(26, causal=True)
    forms = ("eager", "compressive_transformer_pytorch")
    ours, theirs = pair("compressive_transformer", forms, config, w)
    layer = theirs.package_layer
    key, value = layer.to_kv.weight.chunk(2)
    conv = layer.compress_mem_fn.conv
    ours.query.weight.copy_(layer.to_q.weight)
    ours.key.weight.copy_(key)
    ours.value.weight.copy_(value)
    ours.output.weight.copy_(layer.to_out.weight)
    ours.compress.weight.copy_(conv.weight.transpose(1, 2).flatten(1))
    for unused in (ours.position.weight, ours.u, ours.v, layer.to_out.bias, conv.bias):
        unused.zero_()
    return ours, theirs, tokens(w)


@pytest.mark.parametrize("sizes", [(4, 4, 4, 2), (6, 6, 3, 3), (4, 8, 2, 4)])
def test_compressive_transformer(sizes):
    ours, theirs, x = compressive(*sizes)
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x))


def test_the_loss_of_compressive_transformer_if_the_memory_is_one_segment():
    ours, theirs, x = compressive(4, 4, 6, 2)
    ours.train()(x)
    theirs.train()(x)
    # nothing leaves in the first segment or in the incomplete last one
    loss = torch.stack(theirs.losses[1:-1]).mean()
    torch.testing.assert_close(ours.auxiliary_loss(), loss)


@pytest.mark.parametrize("form", ["eager", "sdpa", "folded"])
@torch.no_grad()
def test_causal_memory_compressed_attention_of_a_multiple_of_three(form):
    """Theirs is one grouped convolution, scales by 1 / √D, and pads at the front."""
    w, forms = workload(21, width=16, causal=True), (form, "memory_compressed_attention")
    ours, theirs = pair("memory_compressed", forms, memory_compressed.Config(bias=True), w)
    layer = theirs.package_layer
    q, k, v = layer.to_qkv.weight.chunk(3)
    for linear, weight in ((ours.query, q * (4 / 16) ** 0.5), (ours.key, k), (ours.value, v)):
        linear.weight.copy_(weight)
        linear.bias.zero_()
    conv = layer.compress_fn.conv  # weight [D, D / H, 3]
    full = torch.stack([torch.block_diag(*tap.split(4)) for tap in conv.weight.unbind(-1)], 1)
    for linear in (ours.compress_key, ours.compress_value):
        linear.weight.copy_(full.flatten(1))
        linear.bias.copy_(conv.bias)
    ours.output.load_state_dict(layer.to_out.state_dict())
    for our, their in ((ours.null_key, layer.null_k), (ours.null_value, layer.null_v)):
        our.copy_(torch.nn.init.normal_(their).flatten())
    x = tokens(w)
    torch.testing.assert_close(ours(x), theirs(x))


@pytest.mark.parametrize(
    ("package", "seq_len", "heads", "batch", "iterations", "real"),
    [
        ("transformers", 6, 1, 1, 6, 6),
        ("transformers", 6, 4, 3, 40, 6),
        ("transformers", 24, 1, 1, 6, 24),
        ("nystrom_attention", 24, 1, 1, 6, 24),
        ("nystrom_attention", 24, 1, 1, 6, 22),
        ("nystrom_attention", 24, 4, 3, 40, 18),
    ],
)
def test_nystromformer(package, heads, batch, iterations, real, seq_len):
    """Both scale Z₀ by one number for the batch: with one head ours, else of no effect in time."""
    options = {"landmarks": 6, "iterations": iterations, "conv_kernel": 33}
    config = nystromformer.Config(**options, bias=real == seq_len)
    padding = 0.1 * (real < seq_len)
    w = workload(seq_len, width=16, heads=heads, batch=batch, padding=padding)
    ours, theirs = (m.eval() for m in pair("nystromformer", ("eager", package), config, w))
    theirs.load_state_dict(ours.state_dict())
    x = tokens(w)
    mask = (torch.arange(seq_len) < real).expand(batch, -1) if padding else None
    # one package's identity matrix is float32, and the other adds 10⁻⁸ to counts of tokens
    y, expected = ours(x, mask)[:, :real], theirs(x, mask)[:, :real]
    torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("package", "within"),
    [("transformers", False), ("reformer_pytorch", False), ("reformer_pytorch", True)],
)
def test_reformer_with_equal_hashes(package, within, causal, monkeypatch):
    w, chunks, rounds = workload(64, causal=causal), 8, 3
    config = reformer.Config(chunk=8, rounds=rounds, buckets=chunks, within_bucket=within)
    ours, theirs = pair("reformer", ("eager", package), config, w)
    theirs.load_state_dict(ours.state_dict())
    x = tokens(w)
    y = ours(x)
    # one package has one bucket per chunk: there any larger offset separates the rounds
    ours_only = package == "transformers"
    offset, name = (chunks, "_hash_vectors") if ours_only else (1000, "hash_vectors")
    buckets = ours.buckets + offset * torch.arange(rounds)[:, None]
    buckets = buckets.flatten(2) if ours_only else buckets.flatten(0, 1).flatten(1)
    monkeypatch.setattr(theirs.package_layer, name, lambda *_, **__: buckets)
    torch.testing.assert_close(y, theirs(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("form", ["eager", "sdpa"])
def test_clusters_of_routing_transformer(form):
    config = routing_transformer.Config(clusters=4, members=8, local_heads=0)
    forms = (form, "routing_transformer")
    ours, theirs = (m.eval() for m in pair("routing_transformer", forms, config, workload(32)))
    theirs = theirs.package_layer.global_attn
    theirs.kmeans.means.copy_(ours.centroids)
    theirs.kmeans.initted.fill_(True)
    q, k, v = torch.randn(3, 2, 4, 32, 8, dtype=torch.float64)
    y = ours.attend(q, k, v, None)
    # theirs normalises only for the choice; the paper also attends with normalised vectors
    expected, _ = theirs(layer_norm(q, (8,)), layer_norm(k, (8,)), v)
    torch.testing.assert_close(y, expected, rtol=1e-3, atol=1e-4)
    assert (y == 0).all(-1).any(), "some token is in no cluster"


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("form", card("set_transformer").own_forms)
def test_the_points_of_set_transformer(form, masked):
    """The package scales by the width of a head; the paper's authors, and we, by the width."""
    w = workload(11, width=64)
    config = set_transformer.Config(points=5)
    ours, theirs = pair("set_transformer", (form, "isab_pytorch"), config, w)
    block, attention = ours.block, theirs.package_layer.attn1
    key, value = attention.to_kv.weight.chunk(2)
    with torch.no_grad():
        block.query.weight.copy_(attention.to_q.weight * 4**0.5)
        block.key.weight.copy_(key)
        block.value.weight.copy_(value)
        block.output.weight.zero_()
    x = tokens(w)
    mask = torch.arange(11) < torch.tensor([[11], [6]]) if masked else None
    read = ours.gather(x, mask) - block.query(ours.points)
    points = ours.points.expand(2, -1, -1)
    torch.testing.assert_close(attention.to_out(read), attention(points, x, mask=mask))


@pytest.mark.parametrize("form", ["eager", "sdpa"])
def test_blocks_of_sinkhorn(form):
    """The package's sorted values are its sorted keys."""
    config, forms = sinkhorn.Config(block=4, iterations=7), (form, "sinkhorn_transformer")
    module, theirs = pair("sinkhorn", forms, config, workload(20))
    R = torch.randn(2, 4, 5, 5, dtype=torch.float64)
    P = module.balance(R, None)
    balanced = theirs.library.sinkhorn_sorting_operator(R.flatten(0, 1), 7)
    torch.testing.assert_close(P, balanced.view_as(R))
    theirs = theirs.package_layer.sinkhorn_attention
    theirs.sort_net.forward = lambda q, k, topk: P.flatten(0, 1)
    q, k, v = torch.randn(3, 2, 4, 20, 8, dtype=torch.float64)
    q_, k_, v_ = (x.unflatten(2, (5, 4)) for x in (q, k, v))
    torch.testing.assert_close(module.mixed(q_, k_, k_, P, None).flatten(2, 3), theirs(q, k, k))
    keys, values = (torch.cat([torch.einsum("bhij,bhjmd->bhimd", P, x), x], -2) for x in (k_, v_))
    expected = (q_ @ keys.mT / 8**0.5).softmax(-1) @ values
    torch.testing.assert_close(module.mixed(q_, k_, v_, P, None), expected)
