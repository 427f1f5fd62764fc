"""`attnbench check`: is anything slower or larger than it was?"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnbench import __version__
from attnbench.cli import console, options
from attnbench.cli.asking import typed
from attnbench.cli.stopping import stoppable
from attnbench.device import choose
from attnbench.errors import UsageError
from attnbench.workloads.option import HelpPanel

if TYPE_CHECKING:
    from attnbench.gate.finding import Report

AGAINST, JUDGE = "What to compare with", "How to judge"


def check(
    base: Annotated[
        str | None,
        typer.Option(
            metavar="REVISION",
            rich_help_panel=AGAINST,
            help="Git revision to compare with; both are measured now.",
        ),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=AGAINST,
            help="File that --save wrote; times are compared only on the machine that wrote it.",
        ),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=AGAINST,
            help="Write a baseline file; without --models, for @all.",
        ),
    ] = None,
    models: Annotated[
        str | None,
        typed(
            "models",
            HelpPanel.WHAT,
            "Same syntax as in sweep; name:* checks every form, not only the default.",
        ),
    ] = None,
    changed: Annotated[
        bool,
        typer.Option(
            "--changed",
            rich_help_panel=HelpPanel.WHAT,
            help="Only mechanisms whose files differ from --base.",
        ),
    ] = False,
    lengths: Annotated[str, typed("lengths", HelpPanel.WHAT)] = "128,512",
    level: Annotated[str, typed("level", HelpPanel.WHAT, usual="attention")] = "attention",
    mode: Annotated[str, typed("mode", HelpPanel.WHAT)] = "both",
    device: Annotated[str, typed("device", HelpPanel.WHAT)] = "cpu",
    seed: Annotated[str, typed("seed", HelpPanel.WHAT)] = "0",
    budget: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            rich_help_panel=JUDGE,
            help="Time for the whole check; cases that do not fit are unsure.",
        ),
    ] = "5m",
    threshold: Annotated[str | None, options.threshold_option(JUDGE)] = None,
    no_times: Annotated[
        bool,
        typer.Option("--no-times", rich_help_panel=JUDGE, help="Compare counts only, not times."),
    ] = False,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            rich_help_panel=JUDGE,
            help="Exit with 3 if unsure; larger counts fail even if faster.",
        ),
    ] = False,
    markdown: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=HelpPanel.OUTPUT,
            help="Write a Markdown page, as for a job summary.",
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=HelpPanel.OUTPUT,
            help="Write an HTML page, as one file.",
        ),
    ] = None,
    junit: Annotated[
        Path | None,
        typer.Option(metavar="FILE", rich_help_panel=HelpPanel.OUTPUT, help="Write JUnit XML."),
    ] = None,
    json_: Annotated[
        bool,
        typer.Option("--json", rich_help_panel=HelpPanel.OUTPUT, help="Print the results as JSON."),
    ] = False,
) -> None:
    """Compare with a revision or a stored baseline; exit with 1 if slower, larger or failing.

    Without --models, the mechanisms whose files differ from --base are checked. Times are CPU
    time. The process keeps freed memory, so that page faults add no noise; the times therefore
    miss part of what a copy into fresh memory costs.
    """
    if sum(given is not None for given in (base, baseline, save)) != 1:
        raise UsageError("check needs one of --base REF, --baseline FILE and --save FILE")
    if changed and base is None:
        raise UsageError("--changed needs --base")
    chosen = None if models is None else options.selections(models)
    console.begin("starting the processes that measure")
    from attnbench.cli.starting import runner
    from attnbench.gate import stored
    from attnbench.gate.cases import CheckPlan
    from attnbench.gate.check import against_revision
    from attnbench.gate.finding import traded
    from attnbench.store import output
    from attnbench.workloads import axes

    output.refuse_unwritable(save, markdown, html, junit)
    measured, drawn = choose(device), options.read("seed", seed)
    plan = CheckPlan(
        lengths=axes.lengths(lengths),
        level=options.read("level", level),
        modes=options.read("mode", mode),
        device=measured.name,
        budget_s=axes.seconds(budget, "--budget"),
        threshold=options.threshold(threshold, measured.threshold),
        times=not no_times,
        seed=drawn,
    )
    own = base is not None
    unchanged = "nothing was kept, the repository is unchanged"
    with stoppable(lambda: unchanged), runner(device, drawn, own) as measuring:
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
        console.err().print(f"{cases} cases written to {save}")
        return
    report = report if strict else traded(report)
    publish(report, strict, json_, markdown=markdown, html=html, junit=junit)
    raise typer.Exit(report.exit_code(strict))


def publish(
    report: "Report",
    strict: bool,
    as_json: bool,
    *,
    markdown: Path | None,
    html: Path | None,
    junit: Path | None,
) -> None:
    """Print, write the files that were asked for, and annotate a job on GitHub."""
    from attnbench.render import check_page
    from attnbench.store import output

    if as_json:
        console.data(check_page.data(report, strict))
    else:
        show(report)
    page = check_page.page(report).encode()
    if markdown is not None:
        output.write(markdown, page, stream=True)
    if html is not None:
        output.write(html, check_page.web_page(report), stream=True)
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        # other steps of a job write the same file
        with output.writing(summary), open(summary, "ab") as file:
            file.write(page)
    if junit is not None:
        output.write(junit, check_page.junit(report), stream=True)
    if os.environ.get("GITHUB_ACTIONS"):
        for line in check_page.annotations(report):
            typer.echo(line, err=as_json)


def show(report: "Report") -> None:
    """The verdict, what fails and what is uncertain; then the tables."""
    from attnbench.render import check_page

    terminal = console.out()
    terminal.print(check_page.headline(report))
    for line in check_page.news(report):
        terminal.print(f"  {line}")
    for table in check_page.tables(report):
        terminal.print()
        console.show(table)
    for sentence in check_page.method(report):
        terminal.print(sentence)
