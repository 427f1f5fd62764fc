"""`attnbench compare`: what changed between two stored sweeps."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from attnbench.commands import console, options
from attnbench.commands.options import argument
from attnbench.commands.publishing import analysed
from attnbench.report import names


def compare(
    first: Annotated[Path, argument("SWEEP_A", "Folder of the earlier sweep.")],
    second: Annotated[Path, argument("SWEEP_B", "Folder of the later sweep.")],
    json_: bool = options.as_json(),
) -> None:
    """Compare a sweep with an earlier one: what became slower, faster, larger, or is missing."""
    from attnbench.commands.compare.analysis import compare
    from attnbench.commands.compare.table import changes

    comparison = compare(*(analysed(folder, of=str(folder)) for folder in (first, second)))
    if comparison.differs:
        console.warn([f"the sweeps differ in {'; '.join(comparison.differs)}"])
    if json_:
        conclusions = [asdict(each) for each in comparison.conclusions]
        console.data(
            {"differs": comparison.differs, "conclusions": conclusions, "cases": comparison.rows}
        )
    else:
        console.show(
            *names.with_labels(
                [changes(comparison)], comparison.rows["series"], comparison.suspects
            )
        )
