"""Transformer: the block mask for flex_attention equals torch's, and forms that cannot run."""

import sys
from types import ModuleType

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask

from attnbench.measure import allocator
from attnbench.measure.worker import Worker
from attnbench.mechanisms.transformer import Transformer, Xformers, past, triangle

CPU = torch.device("cpu")
PARTS = ("kv_num_blocks", "full_kv_num_blocks", "q_num_blocks", "full_q_num_blocks")


@pytest.mark.parametrize("N", [1, 127, 128, 129, 500, 1024])
def test_the_causal_block_mask_equals_torchs(N):
    ours, theirs = triangle(N, CPU), create_block_mask(past, None, None, N, N, device="cpu")
    assert ours.seq_lengths == (N, N)
    assert torch.equal(ours.to_dense(), theirs.to_dense())
    for part in PARTS:
        assert torch.equal(getattr(ours, part), getattr(theirs, part)), part


def refuses(*_, **__):
    raise NotImplementedError("No operator found for these inputs:\nquery: shape=(1, 2)")


@pytest.mark.parametrize(
    ("ops", "reason"),
    [
        (
            {"memory_efficient_attention": refuses, "LowerTriangularMask": None},
            "xformers: No operator found for these inputs:",
        ),
        ({}, "xformers: cannot import name 'LowerTriangularMask' from 'xformers.ops'"),
    ],
)
def test_an_xformers_that_cannot_run_is_unsupported(monkeypatch, ops, reason):
    """It is installed, but without a kernel for these sizes, or for another torch."""
    package, module = ModuleType("xformers"), ModuleType("xformers.ops")
    vars(module).update(ops)
    monkeypatch.setitem(sys.modules, "xformers", package)
    monkeypatch.setitem(sys.modules, "xformers.ops", module)
    monkeypatch.setattr(Xformers, "needs", Transformer.needs)
    monkeypatch.setattr(allocator, "mallopt", lambda parameter, value: None)
    workload = {"batch": 1, "seq_len": 8, "width": 8, "heads": 2, "level": "attention"}
    asked = {"mechanism": "transformer", "form": "xformers", "options": [], "workload": workload}
    answer = Worker(None, seed=0).answer("build", **asked)
    assert answer["outcome"] == "unsupported"
    assert answer["reason"].startswith(reason)
    assert "\n" not in answer["reason"]
