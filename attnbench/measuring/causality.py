"""Whether outputs of earlier tokens change when later tokens do, and if so from where to where."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from attnbench.attention import Card, Exemption
from attnbench.measuring.caller import Caller
from attnbench.measuring.draws import Draws
from attnbench.measuring.gradients import vary
from attnbench.measuring.inputs import Inputs
from attnbench.measuring.subject import subject_of
from attnbench.mechanisms import catalogue
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
    return not catalogue.is_built_in(case.mechanism) or bool(card.forms[case.form].package)


def leak_of(card: Card, case: Case, seed: int) -> Leak | None:
    """How a causal case of others sees later tokens, if it does; its parameters vary a little."""
    w = case.workload
    if not (w.causal and is_of_others(card, case)) or w.seq_len < 2:
        return None
    if Exemption.FUTURE_SELECTION in card.exemptions(
        card.configure(dict(case.options))
    ):  # which its card says
        return None
    caller = Caller(subject_of(card, case, seed))
    vary(caller.mechanism.parameters())
    return leak(caller, in_steps(caller) if w.steps else with_fixed_draws(caller, caller.draws()))


def leak(caller: Caller, forward: Forward) -> Leak | None:
    """How later tokens change earlier outputs: of the first, of the last but one, and between."""
    x = prompt(caller)
    output = forward(x)
    noise = (forward(x) - output).abs().amax()
    rounding = max(ROUNDING, STEPS * torch.finfo(caller.subject.dtype).eps)
    least = rounding * output.square().mean().sqrt()
    for prefix in prefix_lengths(output.shape[-2]):
        if NOISE * noise <= least:
            change = (forward(with_new_end(caller, x, prefix)) - output)[..., :prefix, :].abs()
            if change.max() > least:
                return nearest_leak(forward, x, with_new_end(caller, x, prefix), prefix, least)
        elif differs_beyond_noise(forward, x, with_new_end(caller, x, prefix), prefix):
            return Leak(prefix, prefix + 1, located=False)
    return None


def prefix_lengths(tokens: int) -> Iterator[int]:
    """How many first tokens stay: one, all but one, and some, which end within a block."""
    middle = tokens // 2 | 1  # odd
    yield from sorted({1, middle if middle < tokens else 1, tokens - 1})


def nearest_leak(forward: Forward, x: Inputs, new_x: Inputs, prefix: int, least: Tensor) -> Leak:
    """A leak over a short distance: the last output that changed, and the first token that did it.

    Later tokens are halved until one is left.

    forward: from inputs to outputs [B, N, D], with the same draws each time
    x:       the input
    new_x:   the same but for the tokens after the prefix, which are others
    prefix:  number of first tokens that both inputs share
    least:   by how much an output must change
    """
    output = forward(x)
    change = (forward(new_x) - output)[..., :prefix, :].abs() > least
    place = int(change.any(-1).flatten(0, -2).any(0).nonzero().max())
    low = prefix
    high = output.shape[-2]
    while high - low > 1:
        middle = (low + high) // 2
        mixed = mixed_input(x, new_x, low, middle)
        difference = (forward(mixed) - output)[..., place, :].abs().max()
        low, high = (low, middle) if difference > least else (middle, high)
    return Leak(place + 1, low + 1)


def differs_beyond_noise(forward: Forward, x: Inputs, new_x: Inputs, prefix: int) -> bool:
    """Whether mean outputs of the first tokens differ, over repeats, by more than chance.

    forward: from inputs to outputs [B, N, D], which vary for the same input
    x:       the input
    new_x:   the same but for the tokens after the prefix, which are others
    prefix:  number of first tokens, whose outputs are compared
    """
    changes = torch.stack(
        [(forward(new_x) - forward(x))[..., :prefix, :].double().flatten() for _ in range(REPEATS)]
    )
    products = changes @ changes.T
    off_diagonal = products - torch.diag(products.diagonal())
    row_means = off_diagonal.sum(1) / (REPEATS - 1)
    return bool(row_means.mean() > SURE * 2 * row_means.std() / REPEATS**0.5)


def mixed_input(x: Inputs, new_x: Inputs, low: int, high: int) -> Inputs:
    """The input with tokens low, …, high − 1 of the other one.

    x:     the input, of which parts are replaced
    new_x: the other input, of the same shapes
    low:   first token that is replaced, from 0
    high:  the token after the last one that is replaced
    """
    mixed = tuple(each.detach().clone().requires_grad_(each.requires_grad) for each in x)
    with torch.no_grad():
        for target, source in zip(mixed, new_x, strict=True):
            # a number for each token of a head, such as a decay, has no width behind its tokens
            along = -2 if target.ndim == x[0].ndim else -1
            target.narrow(along, low, high - low).copy_(source.narrow(along, low, high - low))
    return mixed


def with_new_end(caller: Caller, x: Inputs, prefix: int) -> Inputs:
    """The input with all but the first `prefix` tokens drawn anew."""
    return mixed_input(x, tuple(torch.randn_like(each) for each in x), prefix, x[0].shape[-2])


def prompt(caller: Caller) -> Inputs:
    """An input of the mechanism; where it steps, of some tokens."""
    w = caller.subject.case.workload
    if not w.steps:
        return caller.new_input()
    return (caller.subject.normal_numbers(w.batch, min(w.seq_len, max(PROMPT, w.step)), w.width),)


def with_fixed_draws(caller: Caller, states: Draws) -> Forward:
    """The output of the mechanism, always with the same random draws."""
    return lambda x: caller.output(x, states).float()


def in_steps(caller: Caller) -> Forward:
    """The outputs of a prompt and of a step of the case's tokens after it."""
    w = caller.subject.case.workload
    states = caller.draws()

    def forward(x: Inputs) -> Tensor:
        (tokens,) = x
        caller.restore(states)
        past = tokens.shape[1] - w.step
        with torch.no_grad():
            state = caller.mechanism.start(w.batch, tokens.shape[1])
            outputs = []
            if past:
                first, state = caller.mechanism.prefill(tokens[:, :past], state)
                outputs.append(first)
            outputs.append(caller.mechanism.step(tokens[:, past:], state)[0])
        return torch.cat(outputs, 1).float()

    return forward
