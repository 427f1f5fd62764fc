"""`attnbench judge`: kernels in, verdicts out."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any

import typer

from attnbench.commands import console
from attnbench.commands.options import argument, as_json, option, usual_sizes, with_sweep_options
from attnbench.commands.stopping import stoppable
from attnbench.errors import AttnbenchError, CannotRun, UsageError
from attnbench.records import HelpPanel
from attnbench.running.request.completion import mechanism as mechanisms
from attnbench.running.request.options import flag, read

ONE_ALONE = ("width", "heads", "batch", "tokens", "dtype")
TAKEN = (
    *("causal", "padding", "lengths", "mode", "width", "heads", "batch", "tokens"),
    *("dtype", "device", "budget", "precision", "rounds", "seed"),
)
USUAL = MappingProxyType({
    **usual_sizes(),
    "tokens": "8k on a CPU, 128k on a GPU",
    "batch": "c // N",
    "causal": "both where it takes causal, else what it computes; the race is not causal",
    "lengths": "512..8k:x4",
    "padding": "0",
    "budget": "2m",
})  # fmt: skip
TEXTS = MappingProxyType({
    "causal": "Judge and race it only causal, or only not.",
    "padding": "Share of padding in the race.",
    "lengths": "Lengths of the race.",
    "mode": "What is raced: training, inference, or both.",
    "budget": "Time for all: 90s, 10m, none.",
})  # fmt: skip
UNFINISHED = 3  # unsure, as `check --strict` ends
ARGUMENTS = (
    "Its inputs are known by their names: q, k, v, or query, key, value; x, dt, A, B, C of a state"
    " space; r, w, k, v, a, b of RWKV-7. g, gk and w are logarithms of decays, beta is a step size,"
    " and scale is 1 where q is scaled already. A mask is [B, N] and True for real tokens where it"
    " is called mask; attn_mask and key_padding_mask are as torch has them."
)


@with_sweep_options(only=TAKEN, defaults=USUAL, texts=TEXTS, single=ONE_ALONE)
def judge(
    functions: Annotated[list[str], argument("FILE.py:FUNCTION…", ARGUMENTS)],
    written: Mapping[str, Any],
    mechanism: str = option(
        "MECHANISM",
        "What it computes, with options: kimi_delta, linformer[rank=64]. Both [B, H, N, d] and"
        " [B, N, H, d] are tried; transformer[axes=bnhd] names the second. For gates with a bound:"
        " kimi_delta[lower_bound=-5].",
        panel=HelpPanel.WHAT,
        default=...,
        names=("--as",),
        complete=mechanisms,
    ),
    json_: bool = as_json(),
) -> None:
    """Judge kernels: is each right, steady under stress, and faster than the form here?

    Each is tried at the sizes of the race and beside them, in every mode that it takes. The exit
    code is 0 if all are right and steady, 1 if one is not, 2 if one cannot be judged, and 3 if the
    budget left out what a verdict needs: single lengths of the race, and longer ones, may be left
    out, and are named. What is not right is not raced.
    """
    options = {**read({name: USUAL[name] for name in ("budget", "lengths")}), **written}
    try:
        run(functions, mechanism, options, json_)
    except AttnbenchError as error:
        if json_:
            console.data([{"function": each, "error": str(error)} for each in functions])
        raise


def run(functions: list[str], mechanism: str, options: Mapping[str, Any], json_: bool) -> None:
    """Judge functions, and print the verdicts.

    functions: each path/to/file.py:FUNCTION.
    mechanism: what they are to compute, with options.
    options: typed values of options of `sweep`, by name.
    json_: whether to print data in place of text.
    """
    for name in ONE_ALONE:
        values = options.get(name)
        if isinstance(values, tuple) and len(values) > 1:
            listed = ",".join(map(str, values))
            raise UsageError(f"{flag(name)} {listed}: give one; judge once for each")
    console.begin("reading the kernel" + ("s" if len(functions) > 1 else ""))
    from attnbench.commands.judge import judging, page
    from attnbench.report import terminal

    questions = tuple(judging.kernel_question(function, mechanism) for function in functions)
    with stoppable(lambda: "nothing was kept"), terminal.ProgressLine(console.err()) as line:
        verdicts = judging.judge_kernels(questions, options, page.Waiting(line).announce, line.turn)
    for verdict in verdicts:
        if verdict.race:
            console.warn(verdict.race.warnings)
    if json_:
        console.data([page.data(verdict) for verdict in verdicts])
    elif len(verdicts) > 1:
        show(line for verdict in verdicts for line in page.lines(verdict))
    elif not verdicts[0].error:
        show_all(verdicts[0])
    finish(verdicts, json_)


def show(lines: Any) -> None:
    """Print sentences, folded to the width of the terminal."""
    from attnbench.report import terminal

    out = console.out()
    for line in lines:
        out.print(terminal.prose([line], out.width))


def show_all(verdict: Any) -> None:
    """Print all that is known of one function."""
    from attnbench.commands.judge import page

    show(page.sentences(verdict))
    console.out().print()
    console.show(page.panel(verdict))
    console.out().print()
    show(page.speed_sentences(verdict))
    for table in page.ratios(verdict.race) if verdict.race else ():
        console.show(table)


def finish(verdicts: Any, json_: bool) -> None:
    """End with the exit code of the verdicts. Raises `CannotRun` where none could be judged."""
    errors = [verdict.error for verdict in verdicts if verdict.error]
    if any(verdict.faulty for verdict in verdicts if not verdict.error):
        raise typer.Exit(1)
    all_late = all(verdict.late for verdict in verdicts if verdict.error)
    if errors and (len(verdicts) == 1 and not json_):
        error = CannotRun(errors[0])
        error.exit_code = UNFINISHED if all_late else error.exit_code
        raise error
    if errors and not all_late:
        raise typer.Exit(CannotRun.exit_code)
    if errors or not all(verdict.complete for verdict in verdicts):
        raise typer.Exit(UNFINISHED)
