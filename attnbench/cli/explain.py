"""`attnbench explain`: why one mechanism takes longer than another, at one length."""

from typing import Annotated

import typer

from attnbench.cli import console
from attnbench.cli.options import as_json, option, shared_option, switch
from attnbench.cli.stopping import stoppable
from attnbench.modes import Mode
from attnbench.workloads import axes


def explain(
    a: Annotated[str, typer.Argument(metavar="A", help="A mechanism, as in sweep.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The one to compare it with.")],
    length: str = option("N", "Sequence length: 3072 or 3k.", default=...),
    mode: str = option("MODE", f"{', '.join(Mode)}.", default="inference"),
    causal: bool = switch("--causal", "Causal attention: no token sees later ones."),
    width: str | None = option("N", "Width of the model, D.  [default: 256]"),
    dtype: str = option("DTYPE", "Number type: fp32, bf16, fp16 or fp64.", default="float32"),
    device: str = shared_option("device", "auto"),
    budget: str = option("TIME", "Time for all levels: 90s, 10m, none.", default="1m"),
    json_: bool = as_json(),
) -> None:
    """Explain why A takes longer than B: times and counts of core, attention and model."""
    at = axes.size(length, "--length", axes.LONGEST)
    given = {"mode": mode, "causal": causal, "width": width}
    given |= {"dtype": dtype, "device": device, "budget": budget}
    console.begin("reading mechanisms")
    from attnbench.analysis.explain import by_level
    from attnbench.api.explaining import at_levels
    from attnbench.render.explain import costs, sentences, title
    from attnbench.render.terminal import ProgressLine

    with stoppable(lambda: "nothing was kept"), ProgressLine(console.err()) as line:
        found = by_level(at_levels(a, b, at, given, line.turn))
    if json_:
        names = ("level", "ratio", "low", "high", "cases")
        levels = [{name: getattr(level, name) for name in names} for level in found]
        console.data({"text": [*sentences(found)], "levels": levels})
        return
    console.out().print(f"{' '.join(sentences(found))} ({title(found)})\n")
    console.show(costs(found))
