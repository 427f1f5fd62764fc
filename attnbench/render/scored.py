"""How far predictions were off, as a table and as the line above a report."""

from attnbench.analysis.summary import Frame, Row
from attnbench.render import units
from attnbench.render.grid import Cell, Table, words

KINDS = ("first", "refined")
ALL = "all"


def predictions(scores: Frame) -> Table:
    """By which factor seconds and bytes were off, per mechanism; `scores` of `foresight`."""
    kinds = [(quantity, kind) for quantity in dict.fromkeys(scores["quantity"]) for kind in KINDS]
    found = {(row["mechanism"], row["quantity"]): row for _, row in scores.iterrows()}
    names = dict.fromkeys(scores["mechanism"])
    heads = [
        f"{quantity.capitalize()}, {'first guess' if kind == 'first' else 'refined'}, {end}"
        for quantity, kind in kinds
        for end in ("median", "worst")
    ]
    return Table(
        name="predictions",
        title="By which factor predictions were off",
        columns=("Mechanism", "Cases", *heads),
        rows=tuple(
            (
                words(name),
                _cases([found[key] for key in found if key[0] == name]),
                *(
                    _factor(found.get((name, quantity)), f"{kind}_{end}")
                    for quantity, kind in kinds
                    for end in ("median", "worst")
                ),
            )
            for name in names
        ),
        note="The first guess is of FLOPs alone, before anything ran. The refined one is what the"
        " sweep made of it by the time the case first ran, from all that had run before; the"
        " figures show it where nothing was measured. Memory is the allocated peak. A factor of"
        " 1 is exact, and it counts too little and too much alike.",
    )


def told(scores: Frame) -> str | None:
    """One sentence over all mechanisms, or None where nothing was measured."""
    rows = scores[scores["mechanism"] == ALL]
    parts = [
        f"{row['quantity']} by {_text(row, 'refined')} (first guess {_text(row, 'first')})"
        for _, row in rows.iterrows()
    ]
    return f"Predictions were off, before a case first ran: {'; '.join(parts)}." if parts else None


def _text(row: Row, kind: str) -> str:
    middle, worst = (units.ratio(row[f"{kind}_{end}"]) for end in ("median", "worst"))
    return f"{middle} in the median, {worst} at worst"


def _cases(rows: list[Row]) -> Cell:
    most = max(int(row["cases"]) for row in rows)
    return Cell(units.count(most), most)


def _factor(row: Row | None, key: str) -> Cell:
    return Cell(units.NOTHING) if row is None else Cell(units.ratio(row[key]), float(row[key]))
