"""`attnbench check`: is anything slower or larger than it was?"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnbench.cli import console, options
from attnbench.cli.stopping import stoppable
from attnbench.errors import StoreError, UsageError
from attnbench.records import Level

if TYPE_CHECKING:
    from attnbench.gate.cases import Plan
    from attnbench.gate.finding import Report


def check(
    base: Annotated[
        str | None, typer.Option(help="A revision to compare the working tree with, measured now.")
    ] = None,
    baseline: Annotated[
        Path | None, typer.Option(help="A file that --save made; times only on its machine.")
    ] = None,
    save: Annotated[
        Path | None, typer.Option(help="Write such a file; @all mechanisms without --models.")
    ] = None,
    models: Annotated[
        str | None,
        typer.Option(help="As in sweep; name:* is every form, not only the default."),
    ] = None,
    changed: Annotated[
        bool, typer.Option("--changed", help="Only mechanisms whose files differ from --base.")
    ] = False,
    lengths: Annotated[str, typer.Option(help="Same syntax as in sweep.")] = "128,512",
    level: Annotated[Level, typer.Option(help="How much around it.")] = Level.ATTENTION,
    mode: Annotated[str, typer.Option(help="inference, training or both.")] = "both",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")] = "cpu",
    budget: Annotated[
        str,
        typer.Option(help="Time for the whole check; cases that do not fit are unsure."),
    ] = "5m",
    threshold: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="Smaller changes of time are ignored; 0.02, or 0.03 on CUDA.",
        ),
    ] = None,
    no_times: Annotated[
        bool, typer.Option("--no-times", help="Compare only what is counted exactly.")
    ] = False,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Exit with 3 if unsure; larger counts fail even if faster."),
    ] = False,
    seed: Annotated[
        int, typer.Option(min=0, max=options.LARGEST_SEED, help="Of parameters, inputs and order.")
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
    if models is not None:
        options.known(models)
    console.begin("starting the processes that measure")
    plan = planned(lengths, level, mode, device, budget, threshold, not no_times, seed)
    from attnbench.cli import checking

    with stoppable(lambda: "nothing was kept, the repository is as it was"):
        if save is not None:
            made, left_out = checking.save(plan, save, models or "@all")
            for line in left_out:
                console.err().print(f"left out: {line}")
            console.err().print(f"{len(made.cases)} cases are in {save}")
            return
        if base is not None:
            report = checking.against_revision(plan, base, models, changed)
        else:
            assert baseline is not None
            report = checking.against_file(plan, baseline, models)
    from attnbench.gate.finding import traded

    if not strict:
        report = traded(report)
    publish(report, strict, markdown, junit, json_)
    raise typer.Exit(report.exit_code(strict))


def planned(
    lengths: str,
    level: Level,
    mode: str,
    device: str,
    budget: str,
    threshold: float | None,
    times: bool,
    seed: int,
) -> "Plan":
    """What was asked, with the defaults of the device."""
    from attnbench.gate.cases import Plan
    from attnbench.gate.rule import CPU_THRESHOLD, OTHER_THRESHOLD
    from attnbench.workloads import axes

    place = options.device(device)
    usual = CPU_THRESHOLD if place == "cpu" else OTHER_THRESHOLD
    return Plan(
        chosen=(),
        lengths=axes.lengths(lengths),
        level=level,
        modes=options.modes(mode),
        device=place,
        budget_s=axes.seconds(budget, "--budget"),
        threshold=usual if threshold is None else threshold,
        times=times,
        seed=seed,
    )


def publish(
    report: "Report", strict: bool, markdown: Path | None, junit: Path | None, as_json: bool
) -> None:
    """Write the files that were asked for, tell GitHub where it listens, and print."""
    from attnbench.render import check_page as checked
    from attnbench.store import output

    page = checked.page(report).encode()
    if markdown is not None:
        output.write(markdown, page, stream=True)
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        append(Path(summary), page)
    if junit is not None:
        from attnbench.render.ci import junit as xml

        output.write(junit, xml(report), stream=True)
    if os.environ.get("GITHUB_ACTIONS"):
        from attnbench.render.github import annotations

        for line in annotations(report):
            typer.echo(line, err=as_json)
    if as_json:
        console.data(checked.data(report, strict))
    else:
        show(report)


def show(report: "Report") -> None:
    """What matters first: the verdict, what fails, what is not certain; then the tables."""
    from attnbench.render import check_page as checked
    from attnbench.render.terminal import table

    shown = console.out()
    shown.print(checked.headline(report))
    for found in report.failures:
        shown.print(f"  {checked.sentence(found)}")
    for doubt in checked.doubts(report):
        shown.print(f"  {doubt}")
    for one in checked.tables(report):
        shown.print()
        shown.print(table(one, shown.width))
    for said in checked.method(report):
        shown.print(said)


def append(path: Path, content: bytes) -> None:
    """Add to a file that other steps of a job write too. Raises `StoreError`."""
    try:
        with open(path, "ab") as file:
            file.write(content)
    except OSError as error:
        raise StoreError(f"cannot write {str(path)!r}: {error.strerror}") from error
