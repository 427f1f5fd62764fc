"""Whether outputs of earlier tokens change when later tokens do, and if so from where to where."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from attnbench.attention.card import Card, Exemption
from attnbench.measuring.called import Called
from attnbench.measuring.draws import Draws
from attnbench.measuring.gradients import vary
from attnbench.measuring.inputs import Inputs
from attnbench.measuring.subject import subject_of
from attnbench.mechanisms.catalogue.registry import is_built_in
from attnbench.records import Case

# Share of the usual size of the output by which later tokens may change earlier outputs: a causal
# Fourier transform rounds numbers of all tokens together, by 10⁻⁷ in float32.
ROUNDING = 1e-5
STEPS = 8  # of the number type; kernels may add in another order
NOISE = 10  # times what the same input changes it by
REPEATS = 16  # of what draws numbers that cannot be drawn again
SURE = 5.0  # standard errors
PROMPT = 256  # tokens of a prompt that is tried, at most

Forward = Callable[[Inputs], Tensor]  # inputs [..., N, D], or [..., N], to outputs [..., N, D]


@dataclass(frozen=True)
class Leak:
    """That the output of a token changed with a later one; both are counted from 1.

    Beside noise the two are not `located`: means over the outputs of tokens up to `changed` did,
    when all tokens from `by` on changed.
    """

    changed: int
    by: int
    located: bool = True

    def __str__(self) -> str:
        if not self.located:
            first = "the output at token 1"
            outputs = f"the outputs at tokens 1 to {self.changed}" if self.changed > 1 else first
            return f"beside its random numbers, {outputs} changed when all later tokens changed"
        return f"the output at token {self.changed} changed when token {self.by} changed"


def is_of_others(card: Card, case: Case) -> bool:
    """Whether the code is not this package's own, whose tests know whether it is causal."""
    return not is_built_in(case.mechanism) or bool(card.forms[case.form].package)


def leak_of(card: Card, case: Case, seed: int) -> Leak | None:
    """How a causal case of others sees later tokens, if it does; its parameters vary a little."""
    w = case.workload
    if not (w.causal and is_of_others(card, case)) or w.seq_len < 2:
        return None
    if Exemption.FUTURE_SELECTION in card.exemptions(
        card.configure(dict(case.options))
    ):  # which its card says
        return None
    called = Called(subject_of(card, case, seed))
    vary(called.mechanism.parameters())
    return leak(called, stepwise(called) if w.steps else with_draws(called, called.draws()))


def leak(called: Called, forward: Forward) -> Leak | None:
    """How later tokens change earlier outputs: of the first, of the last but one, and between."""
    x = prompt(called)
    usual = forward(x)
    noise = (forward(x) - usual).abs().amax()
    rounding = max(ROUNDING, STEPS * torch.finfo(called.subject.dtype).eps)
    least = rounding * usual.square().mean().sqrt()
    for known in cuts(usual.shape[-2]):
        if NOISE * noise <= least:
            change = (forward(replaced(called, x, known)) - usual)[..., :known, :].abs()
            if change.max() > least:
                return nearest(forward, x, replaced(called, x, known), known, least)
        elif beside_noise(forward, x, replaced(called, x, known), known):
            return Leak(known, known + 1, located=False)
    return None


def cuts(tokens: int) -> Iterator[int]:
    """How many first tokens stay: one, all but one, and some, which end within a block."""
    middle = tokens // 2 | 1  # odd
    yield from sorted({1, middle if middle < tokens else 1, tokens - 1})


def nearest(forward: Forward, x: Inputs, other: Inputs, known: int, least: Tensor) -> Leak:
    """A leak over a short distance: the last output that changed, and the first token that did it.

    Later tokens are halved until one is left.
    """
    usual = forward(x)
    change = (forward(other) - usual)[..., :known, :].abs() > least
    place = int(change.any(-1).flatten(0, -2).any(0).nonzero().max())
    low = known
    high = usual.shape[-2]
    while high - low > 1:
        middle = (low + high) // 2
        mixed = between(x, other, low, middle)
        difference = (forward(mixed) - usual)[..., place, :].abs().max()
        low, high = (low, middle) if difference > least else (middle, high)
    return Leak(place + 1, low + 1)


def beside_noise(forward: Forward, x: Inputs, other: Inputs, known: int) -> bool:
    """Whether mean outputs of the first tokens differ, over repeats, by more than chance."""
    changes = torch.stack(
        [(forward(other) - forward(x))[..., :known, :].double().flatten() for _ in range(REPEATS)]
    )
    products = changes @ changes.T
    off = products - torch.diag(products.diagonal())
    each = off.sum(1) / (REPEATS - 1)
    return bool(each.mean() > SURE * 2 * each.std() / REPEATS**0.5)


def between(x: Inputs, other: Inputs, low: int, high: int) -> Inputs:
    """The input with tokens low, …, high − 1 of the other one."""
    mixed = tuple(each.detach().clone().requires_grad_(each.requires_grad) for each in x)
    with torch.no_grad():
        for new, source in zip(mixed, other, strict=True):
            # a number for each token of a head, such as a decay, has no width behind its tokens
            along = -2 if new.ndim == x[0].ndim else -1
            new.narrow(along, low, high - low).copy_(source.narrow(along, low, high - low))
    return mixed


def replaced(called: Called, x: Inputs, known: int) -> Inputs:
    """The input with all but the first `known` tokens drawn anew."""
    return between(x, tuple(torch.randn_like(each) for each in x), known, x[0].shape[-2])


def prompt(called: Called) -> Inputs:
    """An input of the mechanism; where it steps, of some tokens."""
    w = called.subject.case.workload
    if not w.steps:
        return called.fresh()
    return (called.subject.normal(w.batch, min(w.seq_len, max(PROMPT, w.step)), w.width),)


def with_draws(called: Called, states: Draws) -> Forward:
    """The output of the mechanism, always with the same random draws."""
    return lambda x: called.output(x, states).float()


def stepwise(called: Called) -> Forward:
    """The outputs of a prompt and of a step of the case's tokens after it."""
    w = called.subject.case.workload
    states = called.draws()

    def forward(x: Inputs) -> Tensor:
        (tokens,) = x
        called.restore(states)
        past = tokens.shape[1] - w.step
        with torch.no_grad():
            state = called.mechanism.start(w.batch, tokens.shape[1])
            outputs = []
            if past:
                first, state = called.mechanism.prefill(tokens[:, :past], state)
                outputs.append(first)
            outputs.append(called.mechanism.step(tokens[:, past:], state)[0])
        return torch.cat(outputs, 1).float()

    return forward
