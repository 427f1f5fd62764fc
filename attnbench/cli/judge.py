"""`attnbench judge`: a kernel in, a verdict out."""

from typing import Annotated

import typer

from attnbench.cli import console, sweep
from attnbench.cli.options import as_json, further_options, option
from attnbench.cli.stopping import stoppable
from attnbench.errors import UsageError
from attnbench.workloads.options import flag

SIZES = ("width", "heads", "batch", "tokens")
TAKEN = (*SIZES, "lengths", "mode", "dtype", "device", "budget", "precision", "rounds", "seed")


def judge(
    function: Annotated[
        str, typer.Argument(metavar="FILE.py:FUNCTION", help="Takes q, k, v, … by their names.")
    ],
    further: list[str] | None = further_options(
        "--lengths, --dtype, --device, --budget (2m), --width and others, for the race."
    ),
    mechanism: str = option(
        "MECHANISM",
        "What it computes, with options: kimi_delta, linformer[rank=64]. Both [B, H, N, d] and"
        " [B, N, H, d] are tried; transformer[axes=bnhd] names the second.",
        default=...,
        names=("--as",),
    ),
    json_: bool = as_json(),
) -> None:
    """Judge a kernel: is it right, steady under stress, and faster than the form here?

    The exit code is 0 if it is right and steady, else 1. What is not right is not raced.
    """
    (function,), given = sweep.passed_on(
        "judge", TAKEN, [function, *(further or ())], "FILE.py:FUNCTION"
    )
    given = {"budget": "2m", **given}
    if several := [name for name in (*SIZES, "dtype") if "," in str(given.get(name, ""))]:
        raise UsageError(f"{flag(several[0])} {given[several[0]]}: give one; judge once for each")
    console.begin("reading the kernel")
    from attnbench.api import judging
    from attnbench.render import judgement as page
    from attnbench.render.terminal import ProgressLine

    def announce(found: judging.Found) -> None:
        if not json_:
            for line in page.sentences(found):
                console.out().print(line)
            console.out().print()
            console.show(page.panel(found))

    claim = judging.claim(function, mechanism)
    with stoppable(lambda: "nothing was kept"), ProgressLine(console.err()) as line:
        found, race = judging.judge(*claim, given, announce, line.turn)
    if race:
        console.warn(race.warnings)
    if json_:
        console.data(page.data(found, race))
    else:
        console.out().print()
        for text in page.speed(race):
            console.out().print(text)
        for table in page.ratios(race) if race else ():
            console.show(table)
    if not (found["right"] and found["steady"]):
        raise typer.Exit(1)
