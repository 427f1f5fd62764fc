"""`attnbench explain`: why one mechanism takes longer than another, at one length."""

from dataclasses import asdict
from typing import Annotated

import typer

from attnbench.cli import console, sweep
from attnbench.cli.options import as_json, further_options, option
from attnbench.cli.stopping import stoppable
from attnbench.workloads import axes

TAKEN = ("mode", "causal", "width", "heads", "dtype", "device", "budget", "threads", "seed")


def explain(
    a: Annotated[str, typer.Argument(metavar="A", help="A mechanism, as in sweep.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The one to compare it with.")],
    further: list[str] | None = further_options(
        "--mode (inference), --budget (1m, for all levels), --causal, --width, --heads,"
        " --dtype, --device and others."
    ),
    length: str = option("N", "Sequence length: 3072 or 3k.", default=...),
    json_: bool = as_json(),
) -> None:
    """Explain why A takes longer than B: times and counts of core, attention and model."""
    at = axes.size(length, "--length", axes.LONGEST)
    (a, b), given = sweep.passed_on("explain", TAKEN, [a, b, *(further or ())], "A", "B")
    given = {"mode": "inference", "budget": "1m", **given}
    console.begin("reading mechanisms")
    from attnbench.analysis.explain import by_level
    from attnbench.api.explaining import at_levels
    from attnbench.render.explain import costs, sentences, title
    from attnbench.render.terminal import ProgressLine

    with stoppable(lambda: "nothing was kept"), ProgressLine(console.err()) as line:
        found = by_level(at_levels(a, b, at, given, line.turn))
    if json_:
        names = ("level", "ratio", "low", "high", "cases")
        levels = [
            {name: getattr(level, name) for name in names}
            | {"conclusion": asdict(level.conclusion)}
            for level in found
        ]
        console.data({"text": [*sentences(found)], "levels": levels})
        return
    console.out().print(f"{' '.join(sentences(found))} ({title(found)})\n")
    console.show(costs(found))
