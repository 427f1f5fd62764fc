"""Inputs that never repeat, and numbers that are taken from all over an output."""

import pytest
import torch

from attnbench.measuring import inputs
from attnbench.measuring.inputs import has_places
from attnbench.measuring.worker import Worker
from attnbench.records import PASSES, Mode
from tests.measuring.cases import answered, case, sent


@pytest.mark.parametrize("mode", [*PASSES, Mode.DECODE])
def test_no_input_comes_twice_nor_at_the_same_place(mode, monkeypatch):
    monkeypatch.setattr(inputs, "MOVES", 5)
    worker = Worker(None, seed=0)
    causal = mode is Mode.DECODE
    answered(worker, "build", **sent(case("grouped_query", "sdpa", mode=mode, causal=causal)))
    subject, iterations, seen = worker.built.subject, worker.built.iterate, []
    for _ in range(12):
        iterations.clear()
        (x,) = subject.inputs
        assert (x.is_contiguous(), x.data_ptr() % inputs.LINE, x._is_view()) == (True, 0, False)
        assert x.requires_grad == (mode is Mode.TRAINING)
        seen.append((x.data_ptr(), x.detach().clone()))
    assert len({address for address, _ in seen}) == 5
    contents = torch.stack([content.flatten() for _, content in seen])
    assert len(contents.unique(dim=0)) == 12


def test_few_numbers_are_from_all_over():
    tensor = torch.arange(3 * 5 * 10_000).reshape(3, 5, 10_000).transpose(0, 2)
    found = inputs.some_numbers(tensor)
    assert inputs.SAMPLED / 2 < len(found) <= inputs.SAMPLED
    assert found[0] == tensor.flatten()[0]
    assert set(tensor.flatten()[-100:].tolist()) & set(found.tolist())
    assert len({int(number) % 8 for number in found}) == 8
    assert torch.equal(inputs.some_numbers(tensor[:2]), tensor[:2].flatten())


@pytest.mark.parametrize(
    ("shape", "same"), [((2, 4, 4, 8), True), ((2, 4, 4), False), ((2, 4, 5, 8), False)]
)
def test_heads_of_decays_are_no_tokens_even_if_there_are_as_many(shape, same):
    assert has_places(torch.zeros(shape), torch.zeros(2, 4, 4, 8), -2) is same
