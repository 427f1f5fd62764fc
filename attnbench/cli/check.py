"""`attnbench check`: is anything slower or larger than it was?"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnbench import __version__
from attnbench.cli import console, options
from attnbench.cli.stopping import stoppable
from attnbench.device import choose
from attnbench.errors import StoreError, UsageError
from attnbench.records import Level

if TYPE_CHECKING:
    from attnbench.gate.finding import Report


def check(
    base: Annotated[
        str | None,
        typer.Option(help="Revision to compare with; both are measured now."),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(help="File that --save wrote; times only on its machine."),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(help="Write such a file; @all mechanisms without --models."),
    ] = None,
    models: Annotated[
        str | None,
        typer.Option(help="As in sweep; name:* checks every form, not only the default."),
    ] = None,
    changed: Annotated[
        bool, typer.Option("--changed", help="Only mechanisms whose files differ from --base.")
    ] = False,
    lengths: Annotated[str, typer.Option(help="Same syntax as in sweep.")] = "128,512",
    level: Annotated[Level, typer.Option(help="How much around it is measured.")] = Level.ATTENTION,
    mode: Annotated[str, typer.Option(help="inference, training or both.")] = "both",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")] = "cpu",
    budget: Annotated[
        str,
        typer.Option(help="Time for the whole check; cases that do not fit in are unsure."),
    ] = "5m",
    threshold: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="Ignore relative changes of time below this (0.02; on CUDA 0.03).",
        ),
    ] = None,
    no_times: Annotated[bool, typer.Option("--no-times", help="Count only; time nothing.")] = False,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Exit with 3 if unsure; larger counts fail even if faster."),
    ] = False,
    seed: Annotated[
        int,
        typer.Option(min=0, max=options.LARGEST_SEED, help="Random seed of inputs and order."),
    ] = 0,
    markdown: Annotated[Path | None, typer.Option(help="Write a page for a job's summary.")] = None,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Compare with a revision or a stored baseline; exit with 1 if slower, larger or failing.

    Without --models, the mechanisms whose files differ from --base are checked. Times are CPU
    time with freed memory kept by the process, so that page faults do not blur them: they show
    less than all of what a copy into fresh memory costs.
    """
    if sum(given is not None for given in (base, baseline, save)) != 1:
        raise UsageError("check needs one of --base REF, --baseline FILE and --save FILE")
    if changed and base is None:
        raise UsageError("--changed goes with --base")
    chosen = None if models is None else options.selections(models)
    console.begin("starting the processes that measure")
    from attnbench.cli.starting import bench
    from attnbench.gate import stored
    from attnbench.gate.cases import Plan
    from attnbench.gate.check import against_revision
    from attnbench.gate.finding import traded
    from attnbench.workloads import axes

    there = choose(device)
    plan = Plan(
        lengths=axes.lengths(lengths),
        level=level,
        modes=options.modes(mode),
        device=there.name,
        budget_s=axes.seconds(budget, "--budget"),
        threshold=there.threshold if threshold is None else threshold,
        times=not no_times,
        seed=seed,
    )
    own = base is not None
    left = "nothing was kept, the repository is as it was"
    with stoppable(lambda: left), bench(device, seed, own) as measuring:
        if save is not None:
            chosen = chosen or options.selections("@all")
            cases, left_out = stored.save(plan, save, chosen, measuring, __version__)
        elif base is not None:
            report = against_revision(plan, base, chosen, measuring, only_changed=changed)
        else:
            assert baseline is not None
            report = stored.against_file(plan, baseline, chosen, measuring)
    if save is not None:
        for reason in left_out:
            console.err().print(f"left out: {reason}")
        console.err().print(f"{cases} cases are in {save}")
        return
    report = report if strict else traded(report)
    publish(report, strict, markdown, junit, json_)
    raise typer.Exit(report.exit_code(strict))


def publish(
    report: "Report", strict: bool, markdown: Path | None, junit: Path | None, as_json: bool
) -> None:
    """Write the files that were asked for, annotate a job on GitHub, and print."""
    from attnbench.render import check_page, ci
    from attnbench.store import output

    page = check_page.page(report).encode()
    if markdown is not None:
        output.write(markdown, page, stream=True)
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        append(Path(summary), page)
    if junit is not None:
        output.write(junit, ci.junit(report), stream=True)
    if os.environ.get("GITHUB_ACTIONS"):
        for line in ci.annotations(report):
            typer.echo(line, err=as_json)
    if as_json:
        console.data(check_page.data(report, strict))
    else:
        show(report)


def show(report: "Report") -> None:
    """What matters first: the verdict, what fails, what is not certain; then the tables."""
    from attnbench.render import check_page
    from attnbench.render.terminal import table

    shown = console.out()
    shown.print(check_page.headline(report))
    for line in check_page.news(report):
        shown.print(f"  {line}")
    for grid in check_page.tables(report):
        shown.print()
        shown.print(table(grid, shown.width))
    for sentence in check_page.method(report):
        shown.print(sentence)


def append(path: Path, content: bytes) -> None:
    """Add to a file that other steps of a job write too. Raises `StoreError`."""
    try:
        with open(path, "ab") as file:
            file.write(content)
    except OSError as error:
        raise StoreError(f"cannot write {str(path)!r}: {error.strerror}") from error
