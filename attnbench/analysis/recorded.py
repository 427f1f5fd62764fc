"""What the cases of a `summary` show besides their costs: accuracy and number types."""

from attnbench.analysis.summary import Frame
from attnbench.records import ITEM_BYTES


def precision(cases: Frame) -> Frame:
    """The largest relative error of each form, least precise first; empty if none was measured.

    Columns: mechanism, form, options, sizes, error (of the output, against float64).
    """
    known = cases[cases["error"].notna()]
    worst = known.groupby(["mechanism", "form", "options", "sizes"], sort=False)["error"].max()
    return worst.reset_index().sort_values("error", ascending=False, kind="stable")


def other_types(cases: Frame) -> dict[tuple[str, str], list[str]]:
    """The number types in which a mechanism computed, if they are not those of the case.

    Keys are mechanisms with the dtype of their cases. Types wider than that are meant: sums and
    softmax often use them.
    """
    found: dict[tuple[str, str], list[str]] = {}
    keys = ["mechanism", "dtype"]
    for key, recorded in cases.groupby(keys, sort=False)["number_types"]:
        mechanism, dtype = map(str, key)
        names = {name for text in recorded for name in text.split(", ") if name}
        wider = {name for name in names if ITEM_BYTES.get(name, 0) > ITEM_BYTES.get(dtype, 0)}
        if others := sorted(names - wider - {dtype}):
            found[mechanism, dtype] = others
    return found
