"""`attnbench explain`: why one mechanism takes longer than another, at one length."""

from collections.abc import Mapping
from dataclasses import asdict
from types import MappingProxyType
from typing import Annotated, Any

from attnbench.commands import console
from attnbench.commands.options import argument, as_json, option, usual_sizes, with_sweep_options
from attnbench.commands.stopping import stoppable
from attnbench.running.request import axes
from attnbench.running.request.completion import mechanism
from attnbench.running.request.options import read

TAKEN = ("mode", "causal", "width", "heads", "dtype", "device", "threads", "budget", "seed")
USUAL = MappingProxyType({"mode": "inference", "budget": "1m"})
SHOWN = MappingProxyType({**usual_sizes(), **USUAL})
TEXTS = MappingProxyType({
    "mode": "training, inference or decode.",
    "budget": "Time for all levels together: 90s, 10m, none.",
})  # fmt: skip


@with_sweep_options(only=TAKEN, defaults=SHOWN, texts=TEXTS, single=TAKEN)
def explain(
    a: Annotated[str, argument("A", "A mechanism, as in sweep.", mechanism)],
    b: Annotated[str, argument("B", "The one to compare it with.", mechanism)],
    written: Mapping[str, Any],
    length: str = option("N", "Sequence length: 3072 or 3k.", default=...),
    json_: bool = as_json(),
) -> None:
    """Explain why A takes longer than B: times and counts of core, attention and model."""
    at = axes.size(length, "--length", axes.LONGEST)
    options = {**read(USUAL), **written}
    console.begin("reading mechanisms")
    from attnbench.commands.explain.analysis import by_level
    from attnbench.commands.explain.levels import at_levels
    from attnbench.commands.explain.page import costs, sentences, title
    from attnbench.report import terminal

    with stoppable(lambda: "nothing was kept"), terminal.ProgressLine(console.err()) as line:
        costs_by_level = by_level(at_levels(a, b, at, options, line.turn))
    if json_:
        names = ("level", "ratio", "low", "high", "cases")
        levels = [
            {name: getattr(level, name) for name in names}
            | {"conclusion": asdict(level.conclusion)}
            for level in costs_by_level
        ]
        console.data({"text": [*sentences(costs_by_level)], "levels": levels})
        return
    console.out().print(f"{' '.join(sentences(costs_by_level))} ({title(costs_by_level)})\n")
    console.show(costs(costs_by_level))
