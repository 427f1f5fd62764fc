"""`attnbench sweep`: measures, and reports what it measured."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from attnbench.commands import options as shared
from attnbench.commands.options import argument, option, with_sweep_options
from attnbench.commands.publishing import publish
from attnbench.commands.sweeping.carry_out import sweep_with
from attnbench.records import HelpPanel
from attnbench.running.request.completion import mechanisms
from attnbench.running.request.options import read


@with_sweep_options()
def sweep(
    written: Mapping[str, Any],
    mechanism_names: Annotated[
        list[str] | None,
        argument("MECHANISM", "What to measure, as in --models, such as mine.py.", mechanisms),
    ] = None,
    config: Path | None = option(
        "FILE", "TOML file of options; options on the command line override it.", HelpPanel.WHAT
    ),
    shard: str | None = shared.shard(),
    out: Path | None = shared.out(),
    resume: str | None = shared.resume(),
    trace: str | None = shared.trace(),
    dry_run: bool = shared.dry_run(),
    json_: bool = shared.as_json(HelpPanel.OUTPUT),
) -> None:
    """Measure time and memory of mechanisms over sequence lengths, and draw the figure."""
    if mechanism_names:
        models = [*mechanism_names, *written.get("models", ())]
        written = {**written, **read({"models": ",".join(dict.fromkeys(models))})}
    show = partial(publish, as_json=True) if json_ else publish
    sweep_with(
        written,
        config=config,
        shard=shard,
        out=out,
        resume=resume,
        trace=trace,
        dry_run=dry_run,
        show=show,
        plan_as_json=json_,
    )
