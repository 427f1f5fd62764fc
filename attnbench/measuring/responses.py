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
from attnbench.measuring.caller import Caller
from attnbench.measuring.draws import Draws
from attnbench.measuring.inputs import Inputs, copy_elsewhere, has_places
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

    suspect_signs: list[str] = field(default_factory=list)
    odd_signs: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Input:
    """An input with its output, and another one with the same draws.

    The first `shared_sequences` are equal in both, since others are not to be computed from them.
    """

    x: Inputs
    y: Tensor
    other_x: Inputs
    other_y: Tensor
    states: Draws
    shared_sequences: int

    @property
    def is_same(self) -> bool:
        """Whether the other input gave the same output."""
        change = (self.other_y.double() - self.y.double())[self.shared_sequences :]
        mean_square = self.y.double().square().mean()
        return bool(change.square().mean() <= SAME * mean_square)


@dataclass
class Places:
    """Some places [K, B], the same K of each sequence for all inputs, and what they have shown.

    `ignored` and `passed`, [K, B]: at all inputs so far; `ignored_once` and `passed_once`: the
    shares at each input.
    """

    indices: Tensor
    ignored: Tensor
    passed: Tensor
    ignored_once: list[float] = field(default_factory=list)
    passed_once: list[float] = field(default_factory=list)

    def add(self, ignored: Tensor, passed: Tensor) -> None:
        """Add what an input has shown."""
        self.ignored = self.ignored & ignored
        self.passed = self.passed & passed
        self.ignored_once.append(share(ignored))
        self.passed_once.append(share(passed))


class Responses:
    """Tries inputs until the mechanism has shown that it uses all of them, or `TRIES` times."""

    def __init__(self, caller: Caller) -> None:
        self.caller, self.subject = caller, caller.subject
        self.returned_tokens: list[Tensor] = []
        self.same_outputs: list[bool] = []

    def findings(self) -> Findings:
        """What was found, with parameters as they are; where they hide all, with other signs."""
        findings = self.try_inputs()
        if not all(self.same_outputs):
            return findings
        for _ in range(OPENINGS):
            flip_signs(self.caller.mechanism)
            if not self.draw_input().is_same:
                findings_when_open = self.try_inputs()
                findings_when_open.odd_signs.append(
                    "gave the same output for other input, as it starts; not with other signs of"
                    " its parameters"
                )
                return findings_when_open
        return Findings(["gave the same output for other input"])

    def try_inputs(self) -> Findings:
        """What the inputs show."""
        self.returned_tokens = []
        self.same_outputs = []
        places: dict[int, Places] = {}
        for number in range(1, TRIES + 1):
            trial = self.draw_input()
            if not all(self.is_repeatable(trial) for _ in range(AGAIN if number == 1 else 1)):
                return self.findings_of_noise()
            self.returned_tokens.append(self.unchanged_tokens(trial))
            self.same_outputs.append(trial.is_same)
            if not trial.is_same:
                least = FEW if number == 1 else PLACES
                places = {dim: self.at(places.get(dim), dim, least, trial) for dim in NAMES}
                self.try_places(trial, places)
            if not self.show_any_sign(places):
                break
        return Findings() if all(self.same_outputs) else self.signs(places)

    def show_any_sign(self, places: Mapping[int, Places]) -> bool:
        """Whether any sign has shown at all inputs so far."""
        if all(self.same_outputs) or self.always_returned > 0:
            return True
        shares = (max(share(each.ignored), share(each.passed)) for each in places.values())
        return any(each >= SHOWS for each in shares)

    @property
    def always_returned(self) -> float:
        """The share of the tokens that it always returned as they were; 0 if others are too."""
        if not self.returned_tokens:
            return 0.0
        tokens = torch.stack(self.returned_tokens)
        always = share(tokens.all(0))
        usual_share = share(tokens)
        return 0.0 if always <= max(PASSED_ON, ALWAYS * usual_share) else always

    def signs(self, places: Mapping[int, Places]) -> Findings:
        """The signs that the inputs have shown."""
        findings = Findings()
        inputs = len(self.same_outputs)
        for dim, dim_places in places.items():
            count = int(dim_places.ignored.sum())
            of = dim_places.ignored.numel()
            usual_share = sum(dim_places.ignored_once) / max(1, len(dim_places.ignored_once))
            if count >= IGNORED * of and inputs == TRIES:
                findings.suspect_signs.append(
                    f"did not change its output when {count} of {of} {NAMES[dim]} were replaced"
                )
            elif usual_share >= IGNORED and len(dim_places.ignored_once) > 1:
                findings.odd_signs.append(
                    f"did not change its output for {usual_share:.0%} of the {NAMES[dim]} that were"
                    " replaced, others for other input"
                )
        if inputs == TRIES and self.always_returned:
            findings.suspect_signs.append(
                f"returned {self.always_returned:.0%} of its input as it was"
            )
        elif inputs == TRIES and share(places[TOKENS].passed) >= IGNORED:
            passed = places[TOKENS].passed
            count = int(passed.sum())
            of = passed.numel()
            findings.suspect_signs.append(
                f"passed {count} of {of} tokens on as they were, but for a factor or numbers that"
                " no input changes"
            )
        return findings

    def draw_input(self) -> Input:
        """An input and another one, with their outputs."""
        x = self.caller.new_input()
        states = self.caller.draws()
        y = self.caller.output(x, states)
        other_x = self.caller.new_input()
        shared_sequences = min(1, len(x[0]) - 1)
        with torch.no_grad():
            for new, old in zip(other_x, x, strict=True):
                new[:shared_sequences] = old[:shared_sequences]
        return Input(x, y, other_x, self.caller.output(other_x, states), states, shared_sequences)

    def is_repeatable(self, trial: Input) -> bool:
        """Whether the same draws give the same output again."""
        repeated_y = self.caller.output(trial.x, trial.states)
        return torch.equal(repeated_y, trial.y) or bool(
            self.unresponsive_sequences(trial, repeated_y, TOKENS, REPEATED * LEAST).all()
        )

    def findings_of_noise(self) -> Findings:
        """The signs of one that draws numbers which cannot be drawn again."""
        self.same_outputs = [False]
        signs = noise.signs(self.caller)
        return Findings(signs.suspect_signs, signs.unknown)

    def unchanged_tokens(self, trial: Input) -> Tensor:
        """Which tokens [B, N] come out as they went in; of a core, all or none."""
        x = trial.x
        y = trial.y
        if not self.caller.is_core:
            return (y == x[0]).all(-1) if y.shape == x[0].shape else torch.zeros(1, 1)
        # the core of one token gives its value, as softmax over one key does
        return torch.tensor([[y.shape[-2] > 1 and any(torch.equal(y, each) for each in x)]])

    def at(self, earlier: Places | None, dim: int, least: int, trial: Input) -> Places:
        """The places that are tried: those of `earlier`, or new ones if these are too few.

        earlier: places that were tried before, if any
        dim:     their dimension, as in `NAMES`
        least:   fewest places in all sequences together
        trial:   the input, whose sizes limit them
        """
        sequences = len(trial.x[0]) - trial.shared_sequences
        count = -(-least // sequences)
        if earlier is not None and len(earlier.indices) >= count:
            return earlier
        size = trial.x[0].shape[dim]
        mask = self.subject.mask
        real = size if mask is None or dim == CHANNELS else int(mask[0].sum())
        columns = [torch.randperm(real)[: min(count, real)] for _ in range(sequences)]
        indices = torch.stack(columns, 1).to(trial.y.device)
        all_true = torch.ones_like(indices, dtype=torch.bool)
        return Places(indices, all_true, all_true)

    def try_places(self, trial: Input, places: Mapping[int, Places]) -> None:
        """Replace the places of an input: all at once, and one by one where the output responds."""
        for dim, dim_places in places.items():
            indices = dim_places.indices
            ignored, passed = self.try_replacing(trial, dim, indices)
            if len(indices) > 1 and not bool((ignored | passed).all()):
                pairs = [self.try_replacing(trial, dim, place[None]) for place in indices]
                ignored, passed = (torch.stack(mask) for mask in zip(*pairs, strict=True))
            else:
                ignored, passed = (mask.expand(indices.shape) for mask in (ignored, passed))
            dim_places.add(ignored, passed)

    def try_replacing(self, trial: Input, dim: int, places: Tensor) -> tuple[Tensor, Tensor]:
        """Whether the output of each sequence ignores, or passes on, those of its places [K, B].

        Further inputs of a core may have other sizes, and stay.
        """
        x = tuple(map(copy_elsewhere, trial.x))
        with torch.no_grad():
            for part in (part for part in x if has_places(part, trial.x[0], dim)):
                sequences = part[trial.shared_sequences :]
                for sequence, numbers in zip(sequences, places.T.tolist(), strict=True):
                    for place in numbers:
                        sequence.select(dim, place).normal_(generator=self.subject.generator)
        y = self.caller.output(x, trial.states)
        ignored = self.unresponsive_sequences(trial, y, dim)
        passed = torch.zeros_like(ignored)
        if dim == TOKENS and not self.caller.is_core and y.shape == x[0].shape:
            passed = self.sequences_passed_on(trial, x[0], y, places) & ~ignored
        return ignored, passed

    def unresponsive_sequences(
        self, trial: Input, y: Tensor, dim: int, least: float = LEAST
    ) -> Tensor:
        """Of which sequences [B] the output y is that of the input, but for a share below `least`.

        Each place of the output is compared with its own response to other input.

        trial: an input, with what all of it changes
        y:     the output where some places of it were drawn anew
        dim:   the dimension of these places
        least: share of the response to all input below which there is none
        """
        response, whole_response = (
            squares((output.double() - trial.y.double())[trial.shared_sequences :], dim)
            for output in (y, trial.other_y)
        )
        return largest_share(response, whole_response) * trial.x[0].shape[dim] <= least

    def sequences_passed_on(self, trial: Input, x: Tensor, y: Tensor, places: Tensor) -> Tensor:
        """Which sequences [B] give these places as multiples of what they were, and nothing else.

        All numbers of a token have one multiple, or each has its own: random numbers may drop some.

        trial:  an input, with what all of it changes
        x:      the same with some tokens drawn anew [B, N, D]
        y:      its output [B, N, D]
        places: which tokens those are [K, B]
        """
        shared_sequences = trial.shared_sequences
        rows = torch.arange(places.shape[1], device=places.device)
        into, out, all_into, all_out = (
            (new.detach().double() - old.detach().double())[shared_sequences:]
            for new, old in (
                (x, trial.x[0]),
                (y, trial.y),
                (trial.other_x[0], trial.x[0]),
                (trial.other_y, trial.y),
            )
        )
        put_in = into[rows, places]  # [K, B, D]
        came_out = out[rows, places]
        multiples = (put_in * came_out).sum(-1) / put_in.square().sum(-1)
        middle = multiples.nan_to_num().median()
        middle = torch.ones_like(middle) if (middle - 1).abs() < EXACT else middle
        own_multiples = (all_out[rows, places] / all_into[rows, places]).nan_to_num()
        exact = torch.zeros_like(multiples, dtype=torch.bool)
        limit = max(EXACT, 4 * torch.finfo(self.subject.dtype).eps) ** 2 * came_out.square().sum(-1)
        for multiple in (middle, own_multiples):
            exact |= (came_out - multiple * put_in).square().sum(-1) <= limit
        elsewhere_change = squares(out, TOKENS)
        elsewhere_change[rows, places] = 0.0
        elsewhere = largest_share(elsewhere_change, squares(all_out - middle * all_into, TOKENS))
        return exact.all(0) & (elsewhere * x.shape[TOKENS] <= LEAST)


def squares(change: Tensor, dim: int) -> Tensor:
    """The mean square of a change [B, …] at each place of a dimension, [B, places]."""
    other_dims = [d for d in range(1, change.dim()) if d != change.dim() + dim]
    return change.square().mean(other_dims)


def largest_share(part: Tensor, whole: Tensor) -> Tensor:
    """The largest ratio of each row; 0 where `part` is, whatever the whole."""
    return torch.where(part == 0, 0.0, part / whole).amax(-1)


def share(true: Tensor) -> float:
    """The share of the numbers that are true."""
    return float(true.double().mean())


def flip_signs(mechanism: torch.nn.Module) -> None:
    """Draw the signs of all parameters anew."""
    with torch.no_grad():
        for p in mechanism.parameters():
            if p.is_floating_point():
                p.mul_(torch.randint_like(p, 2) * 2 - 1)
