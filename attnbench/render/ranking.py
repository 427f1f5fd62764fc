"""The series of a sweep ranked at one length: a sentence and a table."""

from attnbench import units
from attnbench.analysis.recommend import Basis, Choice, Excluded, Recommendation
from attnbench.records import Mode
from attnbench.render.answers import in_order, names_of, ratio
from attnbench.render.cost_tables import WIDE
from attnbench.render.grid import Cell, Table, bare, bounded, clean, words
from attnbench.render.labels import why

NOTHING = Cell(units.NOTHING)


def sentence(found: Recommendation) -> str:
    """`At N = 4,096 in inference: fastformer, 1.18× [1.02, 1.36] as fast as linformer.`"""
    names = names_of([choice.series for choice in found.choices])
    ranked = [choice for choice in found.choices if choice.rank is not None]
    where = f"At N = {units.length(found.seq_len)} in {found.mode}"
    if not ranked:
        guess = names[found.choices[0].series] if found.choices else ""
        least = f"; {guess} is predicted to take the least time" if guess else ""
        if found.memory_bytes is not None and found.excluded:
            return f"{where}: no measured series fits into {units.size(found.memory_bytes)}{least}."
        return f"{where}: no series was measured{least}."
    best, first = names[ranked[0].series], [choice for choice in ranked if choice.rank == 1]
    if len(ranked) == 1:
        text = f"{best}, the only series that was measured" + " and fits" * bool(found.memory_bytes)
    elif not ranked[1].margin.known:
        text = f"{best} took the least time; after one round no difference is certain"
    elif len(first) > 1:
        text = f"{in_order([names[choice.series] for choice in first])} tie"
    else:
        margin = ranked[1].margin
        text = f"{best}, {ratio(margin.factor, margin.low, margin.high)} as fast as"
        text += f" {names[ranked[1].series]}"
    return f"{where}: {text}."


def table(found: Recommendation) -> Table:
    """A row for each series: those to choose from, the best first, then the others."""
    batch = (
        f"a batch of {units.count(found.tokens)} tokens" if found.tokens else "the sweep's batch"
    )
    decode = found.mode == Mode.DECODE
    of = "one step" if decode else batch
    notes = [
        f"Series that tie share a rank. {WIDE[0].upper()}{WIDE[1:]} Times are of {of}, with 95 %"
        " confidence intervals; those of ratios to the first are simultaneous.",
        f"Peak memory is that of the sweep's batch{', prompt included' * decode}.",
    ]
    if any(choice.basis is Basis.BETWEEN for choice in found.choices):
        notes.append("Between two measured lengths costs are interpolated in log–log.")
    if any(choice.basis is Basis.PREDICTED for choice in found.choices):
        notes.append("Predicted times have no interval and no rank.")
    return Table(
        name=f"ranking_{found.mode}",
        title=f"Ranking at N = {units.length(found.seq_len)}, {found.mode}",
        columns=(
            *("Mechanism", "Rank", "Time, ms", "Ratio to the first", "Peak, MiB"),
            *(("State",) * decode),
            "Basis",
        ),
        rows=(
            *(_choice(choice, decode) for choice in found.choices),
            *(_excluded(each, found, decode) for each in found.excluded),
        ),
        note=" ".join(notes),
    )


def _choice(choice: Choice, decode: bool) -> tuple[Cell, ...]:
    predicted = choice.basis is Basis.PREDICTED
    time, low, high = (1e3 * value for value in (choice.seconds, choice.low, choice.high))
    margin, peak = choice.margin, choice.peak_bytes
    factor = ratio(margin.factor, margin.low, margin.high) if margin.factor != 1 else "1"
    rank = NOTHING if choice.rank is None else Cell(str(choice.rank), choice.rank)
    return (
        words(choice.series),
        rank,
        Cell(f"≈ {units.plain(time)}", time) if predicted else bounded(time, low, high),
        Cell(factor, bare(margin.factor), bare(margin.low), bare(margin.high)),
        Cell(units.plain(peak / units.MIB, 4), bare(peak / units.MIB)),
        *((Cell(units.size(choice.state_bytes), bare(choice.state_bytes)),) * decode),
        words(_basis(choice)),
    )


def _basis(choice: Choice) -> str:
    """`interpolated, 4,096 to 8,192`."""
    if len(choice.lengths) == 1:
        return str(choice.basis)
    return f"{choice.basis}, {' to '.join(map(units.length, choice.lengths))}"


def _excluded(excluded: Excluded, found: Recommendation, decode: bool) -> tuple[Cell, ...]:
    peak = excluded.peak_bytes / units.MIB
    if excluded.ending:
        reason = excluded.reason or why(excluded.ending, excluded.ending)
    elif units.known(peak):
        reason = f"needs more than {units.size(found.memory_bytes or 0)}"
    else:
        reason = "its peak memory is not known"
    number = Cell(units.plain(peak, 4), bare(peak))
    state = (NOTHING,) * decode
    return (
        *(words(excluded.series), NOTHING, NOTHING, NOTHING),
        *(number, *state, words(clean(reason))),
    )
