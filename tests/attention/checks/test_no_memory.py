"""A refused allocation means the same to `judge` as to a sweep: no fault of the kernel."""

from dataclasses import replace

import pytest

from attnbench.attention.checks.panel import row
from attnbench.attention.checks.repeating import repeated
from attnbench.attention.checks.trial import Trial
from attnbench.commands.judge.fitting import fit_kernel
from attnbench.measuring.answering import failure
from attnbench.mechanisms.catalogue import registry
from attnbench.records import KernelFinding, Outcome

KERNEL = """
import torch

def greedy(q, k, v, causal=False):
    if q.shape[-2] > 100:
        raise {error}
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
"""
ERRORS = [
    ('RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`")', True),
    ('torch.OutOfMemoryError("CUDA out of memory")', True),
    ("MemoryError()", True),
    ('RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED")', False),
    ('ValueError("out of memory")', False),
]


@pytest.mark.parametrize(("error", "refused"), ERRORS)
def test_a_kernel_without_memory_was_not_tried(error, refused, tmp_path):
    file = tmp_path / "kernel.py"
    file.write_text(KERNEL.format(error=error))
    card = registry.card(f"transformer:{file}")
    kernel = fit_kernel(card, "greedy", {}, "float32", "cpu", 64, 4, lengths=((64, 2),))
    long = replace(kernel.attempts[0], tokens=512, batch=2, gradients=False)
    trial = Trial(card, card.configure(dict(kernel.options)), "greedy", long.causal)
    for found in (row(trial, long), repeated(trial, replace(long, repeats=True))):
        assert found.finding is (KernelFinding.UNTRIED if refused else KernelFinding.FAILED)
        assert found.reason
    with pytest.raises((RuntimeError, MemoryError, ValueError)) as raised:
        exec(f"import torch; raise {error}")
    assert failure(raised.value).outcome == (Outcome.OOM if refused else Outcome.FAILED)
