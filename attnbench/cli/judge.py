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
    from attnbench.analysis.judgement import Judgement
    from attnbench.api.judging import Claim
    from attnbench.api.judging import judge as judged
    from attnbench.render import judgement as page
    from attnbench.render.terminal import ProgressLine

    def announce(judgement: Judgement) -> None:
        if not json_:
            for line in page.sentences(judgement):
                console.out().print(line)
            console.out().print()
            console.show(page.panel(judgement))

    claim = Claim.read(function, mechanism)
    with stoppable(lambda: "nothing was kept"), ProgressLine(console.err()) as line:
        found = judged(claim, given, announce, line.turn)
    if found.race:
        console.warn(found.race.warnings)
    if json_:
        console.data(page.data(found))
    else:
        console.out().print()
        for text in page.speed(found):
            console.out().print(text)
        if found.race:
            console.show(page.ratios(found))
    if not (found.right and found.steady):
        raise typer.Exit(1)
