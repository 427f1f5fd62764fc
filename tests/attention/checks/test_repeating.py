"""Whether a function gives the same for the same call, from outputs that are made up."""

from functools import partial

import pytest
import torch

from attnbench.attention.checks import repeating
from attnbench.attention.checks.repeating import Calls, apart, flipped
from attnbench.attention.checks.trial import Trial
from attnbench.commands.judge.fitting import fit_kernel
from attnbench.mechanisms.catalogue import registry
from attnbench.records import KernelFinding

SUM = (2, 3, 5, 4)  # B, H, N, d


class Function:
    """A function of q alone, which is told how often it was called before."""

    def __init__(self, function):
        self.function = function
        self.count = 0
        self.gave = None

    def called(self, inputs):
        y = self.function(inputs["q"], self.count)
        self.count += 1
        self.gave = y.dtype
        return y


def calls(function, ours=None):
    q = torch.randn(SUM, generator=torch.Generator().manual_seed(0))
    usual = ours or (lambda tensors: tensors["q"].double())
    return Calls(Function(function), {"q": q}, usual)


@pytest.fixture(autouse=True)
def few_calls(monkeypatch):
    monkeypatch.setattr(repeating, "LEAST", 6)
    monkeypatch.setattr(repeating, "MOST", 6)


def sound(q, number):
    return q.exp() * (1 + 1e-5 * (number % 2))


def test_what_is_sound_passes_each_question_in_as_many_calls():
    asked = calls(sound)
    for question in (asked.same, asked.other_numbers, asked.fresh_tensors, asked.another_batch):
        question = partial(question, 0.0) if question == asked.same else question
        assert question() == (KernelFinding.PASSED, "")
    assert asked.count == 6 + 3 + (2 + repeating.FRESH) + 2


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda q, n: q if n < 3 else q * 1.1, "call 4 gives another output than the first"),
        (lambda q, n: q if n < 2 else q.double(), "call 3 gives torch.float64, the first"),
        (lambda q, n: q if n < 5 else q * float("nan"), "call 6 gives another output"),
    ],
)
def test_the_call_that_differs_is_named(function, said):
    finding, reason = calls(function).same(0.0)
    assert finding is KernelFinding.VARIES
    assert reason.startswith(said)


BLOCKS = """
import torch


def blocks(q, k, v):
    assert q.shape[2] % 64 == 0 and q.shape[2] != {but}
    return torch.nn.functional.scaled_dot_product_attention(q, k, v)
"""


@pytest.mark.parametrize(
    ("but", "finding"), [(0, KernelFinding.PASSED), (repeating.BLOCK, KernelFinding.FAILED)]
)
def test_what_takes_whole_blocks_is_repeated_at_a_length_that_it_takes(but, finding, tmp_path):
    file = tmp_path / "kernel.py"
    file.write_text(BLOCKS.format(but=but))
    card = registry.card(f"transformer:{file}")
    kernel = fit_kernel(card, "blocks", {}, "float32", "cpu", 64, 4, lengths=((448, 1),))
    attempt = next(attempt for attempt in kernel.attempts if attempt.repeats)
    trial = Trial(card, card.configure(dict(kernel.options)), "blocks", attempt.causal)
    found = repeating.repeated(trial, attempt, 0.0)
    assert found.attempt.tokens == repeating.BLOCK
    assert found.finding == finding


class Remembers:
    """Gives again what it gave for a tensor of the same key."""

    def __init__(self, key):
        self.key = key
        self.known = {}

    def __call__(self, q, number):
        return self.known.setdefault(self.key(q), q.exp())


def test_what_knows_memory_by_its_address_is_found_by_other_numbers_there():
    asked = calls(Remembers(lambda q: q.data_ptr()))
    assert asked.other_numbers() == (
        KernelFinding.REMEMBERS,
        "other numbers give the same output",
    )


def test_what_knows_a_tensor_by_its_ends_is_found_by_the_numbers_between():
    asked = calls(Remembers(lambda q: (q.flatten()[0].item(), q.flatten()[-1].item())))
    assert asked.other_numbers()[0] is KernelFinding.REMEMBERS


def test_what_depends_on_the_number_of_sequences_varies():
    asked = calls(lambda q, n: q - q.mean(0))
    finding, reason = asked.another_batch()
    assert finding is KernelFinding.VARIES
    assert reason == "3 sequences give another output than 2 of them"
    # so does the mechanism itself, as with other random draws
    mixing = calls(lambda q, n: q - q.mean(0), lambda tensors: tensors["q"] - tensors["q"].mean(0))
    assert mixing.another_batch() == (KernelFinding.PASSED, "")


def test_the_ends_of_a_flipped_tensor_stay():
    assert flipped(torch.arange(5)).tolist() == [0, 3, 2, 1, 4]


@pytest.mark.parametrize(
    ("y", "other", "found"),
    [
        ([1.0, 2.0], [1.0, 2.0 + 1e-4], False),
        ([1.0, 2.0], [1.0, 2.01], True),
        ([1.0, float("nan")], [1.0, float("nan")], False),
        ([1.0, float("nan")], [1.0, 2.0], True),
        ([1.0, 2.0], [1.0], True),
    ],
)
def test_outputs_are_apart_by_more_than_sums_in_another_order(y, other, found):
    assert apart(torch.tensor(y), torch.tensor(other)) is found
