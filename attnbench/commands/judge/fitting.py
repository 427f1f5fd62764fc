"""How a user's function is called as a mechanism, and what is then to be tried of it."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from operator import itemgetter
from typing import Any, NamedTuple

from attnbench.attention import Card
from attnbench.attention.arguments import MASKS
from attnbench.attention.checks.panel import A_ROW, OUTPUT, row
from attnbench.attention.checks.plan import (
    BATCHES,
    HEAD_WIDTHS,
    MASK_LENGTHS,
    RaceSizes,
    attempts,
    modes_of,
)
from attnbench.attention.checks.stress import MASKED, USUAL
from attnbench.attention.checks.trial import NotApplicable, Trial, causal_values
from attnbench.attention.contract import Unusable
from attnbench.attention.core import AXES, CAUSAL
from attnbench.records import AGREES, Aspect, Attempt, Causality, Kernel, Option

TOKENS = 64

Way = tuple[float, Trial, str]  # the error, how it was called, and what it raised


def fit_kernel(
    card: Card,
    form: str,
    options: Mapping[str, Option],
    dtype: str,
    device: str,
    width: int,
    heads: int,
    lengths: tuple[tuple[int, int], ...] = (),
    causal: bool | None = None,
    chosen: bool = False,
    padded: bool = False,
) -> Kernel:
    """How a function errs least, and what is to be tried of it. Raises `Unusable`.

    card: of the file with the function, as a form of the mechanism
    form: the name of the function
    options: of the mechanism and of the function's form; those that are given are kept
    dtype: of its inputs
    device: where they are
    width, heads: of the race; others are tried where the function refuses these, unless `chosen`
    lengths: of the race, each with its batch
    causal: whether it is to be causal; None: as it is, or both where it takes that
    padded: whether sequences of the race have padding
    """
    if form not in card.forms:
        raise Unusable(f"there is no function {form!r}; the file has {', '.join(card.forms)}")
    trial = Trial(card, card.configure(options), form, False, device, width, heads)
    ways, refused = working_ways(trial, options, dtype, causal, chosen)
    _, best, _ = ways[0]
    module: Any = best.build(best.workload(TOKENS))
    takes_causal = not module.accepted.keys().isdisjoint(CAUSAL)
    modes = modes_of(card, takes_causal, causal) or (best.causal,)
    mask = found_mask(best, module.binding.mask, dtype, modes[0])
    sizes = RaceSizes(
        width=best.width,
        heads=best.heads,
        dtype=dtype,
        modes=modes,
        lengths=lengths,
        taken=frozenset(module.accepted),
        mask=bool(mask.parameter),
        padded=padded,
    )
    settled = dict(card.options(replace(best.config, **mask.conventions)))
    return Kernel(
        form=form,
        options={**settled, "axes": best.config.axes},
        ways={way_text(each): error for error, each, _ in ways},
        taken=tuple(module.binding.parameters.values()),
        untaken=untaken_parameters(card, module),
        modes=modes,
        mask=f"{mask.parameter} ({mask.meaning})" if mask.meaning else "",
        uncompared_mask="" if mask.meaning else mask.parameter,
        width=best.width,
        heads=best.heads,
        head_width=module.head_width,
        refused=refused,
        attempts=tuple(attempts(card, best.config, sizes)),
    )


def working_ways(
    trial: Trial,
    options: Mapping[str, Option],
    dtype: str,
    causal: bool | None,
    chosen: bool,
) -> tuple[list[Way], dict[str, str]]:
    """The ways to call a function that give an output, the one that errs least first.

    Also the head widths that it refuses, with what it raised. Raises `Unusable` if there is none.

    trial: the function with the sizes of the race
    options: those that were given; they are not varied
    dtype: the number type of its inputs
    causal: the only value to try; None: all that the mechanism has
    chosen: whether the sizes of heads were chosen, so that no others are tried
    """
    refused = dict[str, str]()
    first_ways = list[Way]()
    sizes = [(trial.width, trial.heads), *(() if chosen else other_sizes(trial.width))]
    for width, heads in sizes:
        ways = try_ways(replace(trial, width=width, heads=heads), options, dtype, causal)
        usable = sorted((way for way in ways if not way[2]), key=itemgetter(0))
        if usable:
            return usable, refused
        refused[str(width // heads)] = ways[-1][2]
        first_ways = first_ways or ways
    raise Unusable(unusable_text(first_ways))


def other_sizes(width: int) -> Iterator[tuple[int, int]]:
    """Widths and heads, for a function that takes heads of one width alone."""
    for d in (*HEAD_WIDTHS, 32, 16, 256):
        if width % d == 0:
            yield width, width // d
        else:
            yield 4 * d, 4


def try_ways(
    trial: Trial, options: Mapping[str, Option], dtype: str, causal: bool | None
) -> list[Way]:
    """The error of the output on a short sequence in each way to call the function.

    trial: the function with its sizes.
    options: those that were given; they are not varied.
    dtype: the number type of its inputs.
    causal: the only value to try; None: all that the mechanism has.
    """
    config = trial.config
    axes = (config.axes,) if "axes" in options else AXES
    scales = (False, True) if hasattr(config, "scales") and "scales" not in options else ()
    possible = causal_values(trial.card.causality)
    causals = possible if causal is None else (causal,)
    ways = list[Way]()
    for axis, scaled, is_causal in product(axes, scales or (None,), reversed(causals)):
        scaling = {} if scaled is None else {"scales": scaled}
        way = replace(trial, config=replace(config, axes=axis, **scaling), causal=is_causal)
        workload = way.workload(TOKENS)
        if refused := way.refusal(workload):
            raise Unusable(refused)
        module: Any = way.build(workload)
        if module.unknown:
            raise Unusable(unknown_text(module))
        if scaled and "scale" in module.accepted:
            continue  # it is told how to scale
        ways.append(try_way(way, dtype))
    return ways


def try_way(trial: Trial, dtype: str, tokens: int = TOKENS, masked: bool = False) -> Way:
    """The error of one way to call the function, on a sequence of so many tokens."""
    attempt = Attempt(
        aspect=Aspect.RIGHT,
        inputs=MASKED if masked else USUAL.name,
        tokens=tokens,
        batch=BATCHES if masked else 2,
        width=trial.width,
        heads=trial.heads,
        dtype=dtype,
        causal=trial.causal,
        masked=masked,
        gradients=False,
    )
    try:
        result = row(trial, attempt)
    except NotApplicable as error:
        raise Unusable(str(error)) from error
    if not result.errors:
        return 0.0, trial, result.reason
    return max(result.errors[name] for name in (OUTPUT, A_ROW)), trial, ""


def untaken_parameters(card: Card, module: Any) -> tuple[str, ...]:
    """What the mechanism has and the function does not take: tensors, and whether it is causal."""
    takes_causal = not module.accepted.keys().isdisjoint(CAUSAL)
    untold = card.causality is Causality.OPTIONAL and not takes_causal
    return (*module.binding.untaken, *((CAUSAL[0],) if untold else ()))


class FoundMask(NamedTuple):
    """The parameter of a function for a mask, and what a mask means there.

    Both are empty where it takes none; the meaning alone where every call with one raised.
    """

    parameter: str
    meaning: str

    @property
    def conventions(self) -> dict[str, Option]:
        """The meaning as an option of the function's form."""
        return {"mask_as": self.meaning} if self.meaning else {}


def found_mask(trial: Trial, parameter: str, dtype: str, causal: bool) -> FoundMask:
    """What a mask means, of what is usual for its name: that by which the function errs least.

    At whole blocks of tokens where it takes no odd length; what someone gave is the only one tried.

    trial: the function, called in its best way.
    parameter: the name of its mask; empty where it takes none.
    dtype: the number type of its inputs.
    causal: the mode to try it in.
    """
    if not parameter or not hasattr(trial.config, "mask_as"):
        return FoundMask("", "")
    configured: str | None = trial.config.mask_as
    meanings = (configured,) if configured else MASKS[parameter]
    for tokens in MASK_LENGTHS:
        errors = list[tuple[float, str]]()
        for meaning in meanings:
            way = replace(trial, config=replace(trial.config, mask_as=meaning), causal=causal)
            error, _, reason = try_way(way, dtype, tokens, masked=True)
            if not reason:
                errors.append((error, meaning))
        # one that passes wins by its place: a mask may be given as numbers to add, or as booleans
        agreeing = (meaning for error, meaning in errors if error < AGREES)
        if errors:
            return FoundMask(parameter, next(agreeing, min(errors)[1]))
    return FoundMask(parameter, "")


def unusable_text(ways: list[Way]) -> str:
    """Why a function gives nothing to compare, each reason once."""
    reasons = dict.fromkeys(reason for _, _, reason in ways)
    if len(reasons) == 1:
        return f"it gives nothing to compare: {ways[0][2]}"
    by_axes = {way.config.axes: reason for _, way, reason in ways}
    listing = "; ".join(f"with {axes} {why}" for axes, why in by_axes.items())
    return f"it gives nothing to compare: {listing}"


def unknown_text(module: Any) -> str:
    """That a function takes what nothing gives, and what it may take."""
    takes = ", ".join((*module.names, *MASKS, *sorted(module.known)))
    return f"it takes {', '.join(module.unknown)}, which nothing gives; it may take {takes}"


def way_text(trial: Trial) -> str:
    """`bnhd, causal`."""
    scales = ", scaling q" if getattr(trial.config, "scales", False) else ""
    return f"{trial.config.axes}{', causal' if trial.causal else ''}{scales}"
