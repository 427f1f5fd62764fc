"""Whether the output of a mechanism responds to its input: to all of it, each token, each channel.

Two outputs with the same random draws are compared, one of them for an input in which some places
were drawn anew. A place is a token or a channel of a sequence. Its response is measured beside that
to a wholly new input: of a linear function of N tokens, each has an N-th of it, whether it mixes
them or not. Where draws cannot be repeated, `noise` compares means over repeats.

A sign is reported only if several inputs show it, and always at the same places: a mechanism may
choose by content which tokens it reads.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import torch
from torch import Tensor

from attnbench.measuring import noise
from attnbench.measuring.called import Called
from attnbench.measuring.draws import Draws
from attnbench.measuring.inputs import Inputs, elsewhere, has_places
from attnbench.measuring.noise import CHANNELS, TOKENS

TRIES = 16  # inputs that must show a sign
# A place does not matter if its response is a smaller share of the usual one. Of honest mechanisms
# most have 1; what adds 10⁻³ of a token to an output that ignores it has 10⁻⁶ · N.
LEAST = 1e-3
SAME = 1e-8  # share of the mean square of an output by which other input must change it
# Share of the places that must show a sign in the end, and meanwhile: of what ignores half of them,
# fewer than 0.3 of `PLACES` show it in one case of a hundred.
IGNORED = 0.3
SHOWS = 0.15
FEW = 4  # places that are tried at the first input, at least
PLACES = 24  # at all of them, at least
# Share of the tokens that a mechanism may return as they were: those that are always the same ones,
# which is most of them unless their contents decide.
PASSED_ON = 0.1
ALWAYS = 0.9
EXACT = 1e-3  # by which a token that is passed on may differ from a multiple of itself
AGAIN = 3  # times that the first input must give the same output for the same draws, others once
# Share of `LEAST` by which outputs for the same draws may differ: what differs by more would hide,
# from call to call, which places matter.
REPEATED = 1e-2
OPENINGS = 4  # times that signs of parameters are drawn for a gate that may have started closed

NAMES = MappingProxyType({TOKENS: "tokens", CHANNELS: "channels"})


@dataclass
class Findings:
    """What was seen: signs that make a series suspect, and odd ones."""

    suspect: list[str] = field(default_factory=list)
    odd: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Input:
    """An input with its output, and another one with the same draws: `kept` sequences are equal.

    Others are not to be computed from one sequence, so that stays.
    """

    x: Inputs
    y: Tensor
    other_x: Inputs
    other_y: Tensor
    states: Draws
    kept: int

    @property
    def is_same(self) -> bool:
        """Whether the other input gave the same output."""
        change = (self.other_y.double() - self.y.double())[self.kept :]
        usual = self.y.double().square().mean()
        return bool(change.square().mean() <= SAME * usual)


@dataclass
class Places:
    """Some places [K, B], the same K of each sequence for all inputs, and what they have shown.

    `ignored` and `passed`, [K, B]: at all inputs so far; `ignored_once` and `passed_once`: the
    shares at each input.
    """

    chosen: Tensor
    ignored: Tensor
    passed: Tensor
    ignored_once: list[float] = field(default_factory=list)
    passed_once: list[float] = field(default_factory=list)

    def saw(self, ignored: Tensor, passed: Tensor) -> None:
        """Add what an input has shown."""
        self.ignored = self.ignored & ignored
        self.passed = self.passed & passed
        self.ignored_once.append(share(ignored))
        self.passed_once.append(share(passed))


class Responses:
    """Tries inputs until the mechanism has shown that it uses all of them, or `TRIES` times."""

    def __init__(self, called: Called) -> None:
        self.called, self.subject = called, called.subject
        self.returned: list[Tensor] = []
        self.same: list[bool] = []

    def findings(self) -> Findings:
        """What was found, with parameters as they are; where they hide all, with other signs."""
        found = self.tried()
        if not all(self.same):
            return found
        for _ in range(OPENINGS):
            flip(self.called.mechanism)
            if not self.input().is_same:
                opened = self.tried()
                opened.odd.append(
                    "gave the same output for other input, as it starts; not with other signs of"
                    " its parameters"
                )
                return opened
        return Findings(["gave the same output for other input"])

    def tried(self) -> Findings:
        """What the inputs show."""
        self.returned = []
        self.same = []
        places: dict[int, Places] = {}
        for number in range(1, TRIES + 1):
            tried = self.input()
            if not all(self.is_repeatable(tried) for _ in range(AGAIN if number == 1 else 1)):
                return self.from_repeats()
            self.returned.append(self.as_it_was(tried))
            self.same.append(tried.is_same)
            if not tried.is_same:
                least = FEW if number == 1 else PLACES
                places = {dim: self.at(places.get(dim), dim, least, tried) for dim in NAMES}
                self.look(tried, places)
            if not self.shows(places):
                break
        return Findings() if all(self.same) else self.signs(places)

    def shows(self, places: Mapping[int, Places]) -> bool:
        """Whether any sign has shown at all inputs so far."""
        signs = (each for own in places.values() for each in (own.ignored, own.passed))
        return all(self.same) or self.always > 0 or any(share(each) >= SHOWS for each in signs)

    @property
    def always(self) -> float:
        """The share of the tokens that it always returned as they were; 0 if others are too."""
        if not self.returned:
            return 0.0
        tokens = torch.stack(self.returned)
        always = share(tokens.all(0))
        usual = share(tokens)
        return 0.0 if always <= max(PASSED_ON, ALWAYS * usual) else always

    def signs(self, places: Mapping[int, Places]) -> Findings:
        """The signs that the inputs have shown."""
        found = Findings()
        inputs = len(self.same)
        for dim, own in places.items():
            count = int(own.ignored.sum())
            of = own.ignored.numel()
            usual = sum(own.ignored_once) / max(1, len(own.ignored_once))
            if count >= IGNORED * of and inputs == TRIES:
                found.suspect.append(
                    f"did not change its output when {count} of {of} {NAMES[dim]} were replaced"
                )
            elif usual >= IGNORED and len(own.ignored_once) > 1:
                found.odd.append(
                    f"did not change its output for {usual:.0%} of the {NAMES[dim]} that were"
                    " replaced, others for other input"
                )
        if inputs == TRIES and self.always:
            found.suspect.append(f"returned {self.always:.0%} of its input as it was")
        elif inputs == TRIES and share(places[TOKENS].passed) >= IGNORED:
            passed = places[TOKENS].passed
            count = int(passed.sum())
            of = passed.numel()
            found.suspect.append(
                f"passed {count} of {of} tokens on as they were, but for a factor or numbers that"
                " no input changes"
            )
        return found

    def input(self) -> Input:
        """An input and another one, with their outputs."""
        x = self.called.fresh()
        states = self.called.draws()
        y = self.called.output(x, states)
        other = self.called.fresh()
        kept = min(1, len(x[0]) - 1)
        with torch.no_grad():
            for new, old in zip(other, x, strict=True):
                new[:kept] = old[:kept]
        return Input(x, y, other, self.called.output(other, states), states, kept)

    def is_repeatable(self, tried: Input) -> bool:
        """Whether the same draws give the same output again."""
        again = self.called.output(tried.x, tried.states)
        return torch.equal(again, tried.y) or bool(
            self.without_response(tried, again, TOKENS, REPEATED * LEAST).all()
        )

    def from_repeats(self) -> Findings:
        """The signs of one that draws numbers which cannot be drawn again."""
        self.same = [False]
        signs = noise.signs(self.called)
        return Findings(signs.suspect, signs.unknown)

    def as_it_was(self, tried: Input) -> Tensor:
        """Which tokens [B, N] come out as they went in; of a core, all or none."""
        x = tried.x
        y = tried.y
        if not self.called.is_core:
            return (y == x[0]).all(-1) if y.shape == x[0].shape else torch.zeros(1, 1)
        # the core of one token gives its value, as softmax over one key does
        return torch.tensor([[y.shape[-2] > 1 and any(torch.equal(y, each) for each in x)]])

    def at(self, before: Places | None, dim: int, least: int, tried: Input) -> Places:
        """The places that are tried: those of `before`, or new ones if these are too few."""
        sequences = len(tried.x[0]) - tried.kept
        count = -(-least // sequences)
        if before is not None and len(before.chosen) >= count:
            return before
        size = tried.x[0].shape[dim]
        mask = self.subject.mask
        real = size if mask is None or dim == CHANNELS else int(mask[0].sum())
        columns = [torch.randperm(real)[: min(count, real)] for _ in range(sequences)]
        chosen = torch.stack(columns, 1).to(tried.y.device)
        every = torch.ones_like(chosen, dtype=torch.bool)
        return Places(chosen, every, every)

    def look(self, tried: Input, places: Mapping[int, Places]) -> None:
        """Replace the places of an input: all at once, and one by one where the output responds."""
        for dim, own in places.items():
            ignored, passed = self.replaced(tried, dim, own.chosen)
            if len(own.chosen) > 1 and not bool((ignored | passed).all()):
                each = [self.replaced(tried, dim, one[None]) for one in own.chosen]
                ignored, passed = (torch.stack(seen) for seen in zip(*each, strict=True))
            else:
                ignored, passed = (seen.expand(own.chosen.shape) for seen in (ignored, passed))
            own.saw(ignored, passed)

    def replaced(self, tried: Input, dim: int, places: Tensor) -> tuple[Tensor, Tensor]:
        """Whether the output of each sequence ignores, or passes on, those of its places [K, B].

        Further inputs of a core may have other sizes, and stay.
        """
        x = tuple(map(elsewhere, tried.x))
        with torch.no_grad():
            for each in (each for each in x if has_places(each, tried.x[0], dim)):
                for sequence, own in zip(each[tried.kept :], places.T.tolist(), strict=True):
                    for place in own:
                        sequence.select(dim, place).normal_(generator=self.subject.generator)
        y = self.called.output(x, tried.states)
        ignored = self.without_response(tried, y, dim)
        passed = torch.zeros_like(ignored)
        if dim == TOKENS and not self.called.is_core and y.shape == x[0].shape:
            passed = self.passes(tried, x[0], y, places) & ~ignored
        return ignored, passed

    def without_response(self, tried: Input, y: Tensor, dim: int, least: float = LEAST) -> Tensor:
        """Of which sequences [B] the output y is that of the input, but for a share below `least`.

        Each place of the output is compared with its own response to other input.
        """
        one, whole = (
            squares((other.double() - tried.y.double())[tried.kept :], dim)
            for other in (y, tried.other_y)
        )
        return largest_share(one, whole) * tried.x[0].shape[dim] <= least

    def passes(self, tried: Input, x: Tensor, y: Tensor, places: Tensor) -> Tensor:
        """Which sequences [B] give these places as multiples of what they were, and nothing else.

        All numbers of a token have one multiple, or each has its own: random numbers may drop some.
        """
        kept = tried.kept
        rows = torch.arange(places.shape[1], device=places.device)
        into, out, all_into, all_out = (
            (new.detach().double() - old.detach().double())[kept:]
            for new, old in (
                (x, tried.x[0]),
                (y, tried.y),
                (tried.other_x[0], tried.x[0]),
                (tried.other_y, tried.y),
            )
        )
        given = into[rows, places]  # [K, B, D]
        got = out[rows, places]
        multiples = (given * got).sum(-1) / given.square().sum(-1)
        usual = multiples.nan_to_num().median()
        usual = torch.ones_like(usual) if (usual - 1).abs() < EXACT else usual
        own = (all_out[rows, places] / all_into[rows, places]).nan_to_num()
        exact = torch.zeros_like(multiples, dtype=torch.bool)
        limit = max(EXACT, 4 * torch.finfo(self.subject.dtype).eps) ** 2 * got.square().sum(-1)
        for multiple in (usual, own):
            exact |= (got - multiple * given).square().sum(-1) <= limit
        others = squares(out, TOKENS)
        others[rows, places] = 0.0
        beside = largest_share(others, squares(all_out - usual * all_into, TOKENS))
        return exact.all(0) & (beside * x.shape[TOKENS] <= LEAST)


def squares(change: Tensor, dim: int) -> Tensor:
    """The mean square of a change [B, …] at each place of a dimension, [B, places]."""
    others = [d for d in range(1, change.dim()) if d != change.dim() + dim]
    return change.square().mean(others)


def largest_share(one: Tensor, whole: Tensor) -> Tensor:
    """The largest ratio of each row; 0 where `one` is, whatever the whole."""
    return torch.where(one == 0, 0.0, one / whole).amax(-1)


def share(true: Tensor) -> float:
    """The share of the numbers that are true."""
    return float(true.double().mean())


def flip(mechanism: torch.nn.Module) -> None:
    """Draw the signs of all parameters anew."""
    with torch.no_grad():
        for p in mechanism.parameters():
            if p.is_floating_point():
                p.mul_(torch.randint_like(p, 2) * 2 - 1)
