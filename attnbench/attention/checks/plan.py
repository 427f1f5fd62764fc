"""What is tried of a form: sizes, modes and inputs, which contain those that are raced."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from attnbench.attention.card import Card
from attnbench.attention.checks.stress import BFLOAT16, LONG, MASKED, STRESSES, USUAL, VIEWS
from attnbench.attention.checks.trial import Trial, causal_values
from attnbench.attention.core import LAYER, tensor_names
from attnbench.records import Aspect, Attempt, selection

WIDTH = 128  # where no race says another
HEADS = 4  # likewise
# one token; odd lengths; whole blocks of 64; tails of 36 and of 1
SHORT = (1, 17, 64, 100, 321)
TOKENS = 512
LONGER = (1024, 4096, 16_384, 65_536)  # by which few need more memory than there is
HEAD_WIDTHS = (64, 128)  # of most models
UNEVEN = 96  # a head width that is no power of two, which tiles of kernels have to mask
OTHER_HEADS = 8  # of which a quarter are two heads of keys, of four each
# heads of keys, and of queries: unequal numbers
GROUPS = "kv_heads"
GROUPED = ((2, 6), (1, 4))
PADDED = 100  # tokens of a masked attempt
MASK_LENGTHS = (PADDED, TOKENS)  # an odd length, and whole blocks, which are all that some take
BATCHES = 3  # sequences of a masked attempt
REPEATED = 72  # tokens of the call that is repeated, and of no other


@dataclass(frozen=True, kw_only=True)
class RaceSizes:
    """The sizes of a race, where a panel is tried first.

    `lengths` with the batch at each. `taken`: options of the mechanism that a function takes, and
    `mask` whether it takes one. `padded`: whether sequences of the race have padding. `modes`: the
    values of `causal`.
    """

    width: int
    heads: int
    dtype: str
    modes: Sequence[bool]
    lengths: tuple[tuple[int, int], ...] = ()
    taken: frozenset[str] = frozenset()
    mask: bool = False
    padded: bool = False


def of_form(trial: Trial, dtype: str = "float32") -> Iterator[Attempt]:
    """The attempts for a form of a mechanism that nothing races."""
    modes = (trial.causal,)
    sizes = RaceSizes(width=trial.width, heads=trial.heads, dtype=dtype, modes=modes)
    if (trial.width, trial.heads) == (16, 4):  # those of the contract
        sizes = replace(sizes, width=WIDTH, heads=HEADS)
    for attempt in attempts(trial.card, trial.config, sizes):
        if attempt.inputs != LONG.name or affordable(trial, attempt):
            yield attempt


def affordable(trial: Trial, attempt: Attempt, most_flops: float = 2e10) -> bool:
    """Whether a long attempt takes seconds, by the FLOPs of the mechanism's usual form."""
    long = replace(trial, width=attempt.width, heads=attempt.heads)
    w = long.workload(attempt.tokens, attempt.batch)
    form = trial.card.forms[trial.form]
    work = form.flops(trial.config, w).core
    elements = form.elements(trial.config, w)
    return work <= most_flops and elements <= 1 << 28


def attempts(card: Card, config: Any, sizes: RaceSizes) -> Iterator[Attempt]:
    """All that is tried, cheap attempts first in each group."""
    first = Attempt(
        aspect=Aspect.RIGHT,
        inputs=USUAL.name,
        tokens=TOKENS,
        batch=2,
        width=sizes.width,
        heads=sizes.heads,
        dtype=sizes.dtype,
        causal=sizes.modes[0],
    )
    for causal in sizes.modes:
        usual = replace(first, causal=causal)
        yield from short(usual)
        yield from masked(usual, sizes)
        yield from with_options(card, usual, sizes)
        yield from other_heads(card, config, usual)
    yield replace(first, tokens=REPEATED, gradients=False, repeats=True, inputs="the same again")
    names = tensor_names((card.mechanism or card).forms["eager"]) or LAYER
    for causal in sizes.modes:
        steady = replace(first, aspect=Aspect.STEADY, causal=causal)
        for stress in STRESSES:
            if not stress.changes.keys().isdisjoint(names):
                yield replace(steady, inputs=stress.name)
        if card.mechanism:  # a function is given its tensors
            yield replace(steady, inputs=VIEWS)
        if sizes.dtype != "bfloat16":
            yield replace(steady, inputs=BFLOAT16, dtype="bfloat16")
    for causal in sizes.modes:
        for tokens, batch in sizes.lengths:
            # the other mode is not raced
            is_raced = causal == sizes.modes[0]
            usual = replace(first, causal=causal, gradients=is_raced)
            in_race = replace(usual, tokens=tokens, batch=batch, raced=True)
            yield in_race
            if sizes.mask and sizes.padded:
                yield replace(in_race, inputs=MASKED, masked=True)
    raced = max((tokens for tokens, _ in sizes.lengths), default=0)
    long = replace(first, aspect=Aspect.STEADY, inputs=LONG.name, batch=1, gradients=False)
    for tokens in LONGER:
        if tokens > raced:
            yield replace(long, tokens=tokens)


def short(usual: Attempt) -> Iterator[Attempt]:
    """The small sizes beside those of the race."""
    for tokens in SHORT:
        yield replace(usual, tokens=tokens, batch=3 if tokens == 17 else 2)
    yield usual


def masked(usual: Attempt, sizes: RaceSizes) -> Iterator[Attempt]:
    """Padding at the beginning and at the end, for a function that takes a mask."""
    if sizes.mask:
        for tokens in MASK_LENGTHS:
            yield replace(usual, inputs=MASKED, tokens=tokens, batch=BATCHES, masked=True)


def with_options(card: Card, usual: Attempt, sizes: RaceSizes) -> Iterator[Attempt]:
    """The card's examples, whose options are small, if a function takes these options."""
    for example in card.examples:
        chosen = {name: value for name, value in card.options(example) if name != "bias"}
        if chosen and chosen.keys() <= sizes.taken:
            inputs = f"with {selection.options_text(chosen.items())}"
            yield replace(
                usual,
                inputs=inputs,
                tokens=PADDED,
                width=WIDTH,
                heads=HEADS,
                options=tuple(chosen.items()),
            )


def other_heads(card: Card, config: Any, usual: Attempt) -> Iterator[Attempt]:
    """Heads of other widths, and other groups of heads that share keys."""
    has_core = bool(tensor_names((card.mechanism or card).forms["eager"]))
    if has_core and getattr(config, "head_width", None) is None:
        for d in HEAD_WIDTHS:
            if d * usual.heads != usual.width:
                other = replace(usual, width=d * OTHER_HEADS, heads=OTHER_HEADS)
                yield replace(other, tokens=100)
                yield replace(other, tokens=321, gradients=False)
        if usual.width != UNEVEN * usual.heads:
            uneven = replace(usual, width=UNEVEN * OTHER_HEADS, heads=OTHER_HEADS)
            yield replace(uneven, tokens=100, gradients=False)
    if hasattr(config, GROUPS) and getattr(config, GROUPS) is None:
        d = usual.width // usual.heads
        for groups, heads in GROUPED:
            inputs = f"with {GROUPS}={groups}"
            sizes = replace(usual, inputs=inputs, tokens=100, width=d * heads, heads=heads)
            yield replace(sizes, options=((GROUPS, groups),))


def modes_of(card: Card, takes_causal: bool, causal: bool | None) -> tuple[bool, ...]:
    """The values of `causal` to try.

    takes_causal: whether the function can be told
    causal: the only one that is asked for, or None
    """
    possible = causal_values(card.causality)
    if causal is not None:
        return (causal,) if causal in possible else ()
    return possible if takes_causal or len(possible) == 1 else ()
