"""`attnbench explain`: why one mechanism takes longer than another, at one length."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from attnbench.cli import console
from attnbench.cli.options import as_json, option, selections
from attnbench.cli.stopping import stoppable
from attnbench.cli.typer_options import with_sweep_options
from attnbench.errors import UsageError
from attnbench.records import Level
from attnbench.workloads import axes
from attnbench.workloads.option import HelpPanel
from attnbench.workloads.options import Options

# options of a sweep that make no sense for two mechanisms at one length
OTHERS = (
    *("models", "lengths", "precision", "rounds", "quick", "cold", "cuda_graphs"),
    *("on", "shards", "slurm", "address"),
)
AROUND = (0.25, 0.5, 1, 2, 4)  # multiples of the length among which the crossover is sought


@with_sweep_options(without=OTHERS, usual={"mode": "inference", "budget": "50s"})
def explain(
    given: Mapping[str, str | bool],
    a: Annotated[str, typer.Argument(metavar="A", help="A mechanism, as in sweep.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The one to compare it with.")],
    length: str = option("N", "Sequence length: 3072 or 3k.", HelpPanel.WHAT, default=...),
    out: Path | None = option("FOLDER", "Write figure, page and data there.", HelpPanel.OUTPUT),
    json_: bool = as_json(HelpPanel.OUTPUT),
) -> None:
    """Explain why A takes longer than B, part by part: projections, core, launches and so on."""
    for side in (a, b):
        if len(selections(side)) != 1:
            raise UsageError(f"{side!r} means several mechanisms; explain compares two")
    at = axes.size(length, "--length", axes.LONGEST)
    if out is None and not {"formats", "size"}.isdisjoint(given):
        raise UsageError("--formats and --size have no effect without --out")
    around = sorted({max(1, min(round(at * times), axes.LONGEST)) for times in AROUND})
    options = Options.of({**given, "models": f"{a},{b}", "lengths": around})
    console.begin("reading mechanisms")
    from attnbench.analysis.explain import Explanation
    from attnbench.api.explaining import paired, race_pairs
    from attnbench.api.servers import own_server
    from attnbench.cli.starting import show_progress
    from attnbench.render.explain import data, files, parts, sentences, title
    from attnbench.store import output
    from attnbench.store.journal import refuse_unwritable
    from attnbench.workloads.reading import plan
    from attnbench.workloads.requests import request

    requested = request(options)
    if "tokens" not in given:  # a minute is short
        requested = replace(requested, tokens=max(1, requested.tokens // 2))
    if len(requested.modes) > 1 or requested.variants:
        raise UsageError("explain takes one mode, width, number of heads, type and batch")
    if requested.level is Level.CORE:
        raise UsageError("level core has no parts; leave out --level, or write --level attention")
    if out is not None:
        refuse_unwritable(out)
    settings, stopped = requested.settings, stoppable(lambda: "nothing was kept")
    with (
        stopped,
        own_server(settings.threads, settings.seed) as server,
        show_progress() as (observe, _),
    ):
        pairs = paired(plan(requested, server).cases, at)
        measured = race_pairs(pairs, at, requested, server, observe)
    found = Explanation(pair=pairs[at], found=measured)
    if out is not None:
        written = files(found, options.value("formats"), options.value("size"))
        written["explain.json"] = json.dumps(console.plain(data(found)), indent=1).encode()
        output.fill(out, written, then=output.ELSEWHERE)
    if json_:
        console.data(data(found))
        return
    console.out().print(f"{title(found)}: {' '.join(sentences(found))}\n")
    console.show(parts(found))
