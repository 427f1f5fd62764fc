"""`attnbench check`: is anything slower or larger than it was?"""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from attnbench.cli import console, options
from attnbench.cli.options import option, switch
from attnbench.cli.stopping import stoppable
from attnbench.cli.typer_options import is_given, shared_option
from attnbench.devices.finding import choose
from attnbench.errors import UsageError
from attnbench.records import HelpPanel
from attnbench.records.selection import parts
from attnbench.store import output
from attnbench.units import many
from attnbench.version import __version__
from attnbench.workloads import axes

if TYPE_CHECKING:
    from attnbench.gate.finding import Report

AGAINST, JUDGE = "What to compare with", "How to judge"


def check(
    context: typer.Context,
    base: str | None = option(
        "REVISION", "Git revision to compare with; both are measured now.", AGAINST
    ),
    baseline: Path | None = option(
        "FILE",
        "File of counts that --save wrote, on any machine.",
        AGAINST,
    ),
    save: Path | None = option(
        "FILE", "Write the counts to a file; without --models, for @all.", AGAINST
    ),
    models: str | None = shared_option(
        "models",
        None,
        HelpPanel.WHAT,
        "Same syntax as in sweep; name:* checks every form, not only the default.",
    ),
    call: str | None = option(
        "NAME,…",
        "Functions without arguments in place of mechanisms: package.module:function.",
        HelpPanel.WHAT,
    ),
    changed: bool = switch(
        "--changed", "Only mechanisms that load a file that differs from --base.", HelpPanel.WHAT
    ),
    lengths: str = shared_option("lengths", "128,512", HelpPanel.WHAT),
    level: str = shared_option("level", "attention", HelpPanel.WHAT),
    mode: str = shared_option("mode", "both", HelpPanel.WHAT),
    device: str = shared_option("device", "cpu", HelpPanel.WHAT),
    seed: str = shared_option("seed", "0", HelpPanel.WHAT),
    budget: str = option(
        "TIME", "Time for the whole check; what does not fit is unsure.", JUDGE, default="5m"
    ),
    threshold: str | None = options.threshold_option(JUDGE),
    no_times: bool = switch("--no-times", "Compare counts only, not times.", JUDGE),
    strict: bool = switch(
        "--strict", "Exit with 3 if unsure; larger counts fail even if faster.", JUDGE
    ),
    markdown: Path | None = option(
        "FILE", "Write a Markdown page, as for a job summary.", HelpPanel.OUTPUT
    ),
    html: Path | None = option("FILE", "Write an HTML page, as one file.", HelpPanel.OUTPUT),
    junit: Path | None = option("FILE", "Write JUnit XML.", HelpPanel.OUTPUT),
    json_: bool = options.as_json(HelpPanel.OUTPUT),
) -> None:
    """Compare with a revision or a stored baseline; exit with 1 if slower, larger or failing.

    By default, every mechanism that a changed file affects is checked. Times are CPU time of
    calls, not of imports. Processes keep freed memory, so that page faults add no noise; the times
    therefore miss part of what a copy into fresh memory costs.
    """
    if sum(given is not None for given in (base, baseline, save)) != 1:
        raise UsageError("check needs one of --base REF, --baseline FILE and --save FILE")
    if call is not None and (base is None or models or changed or no_times):
        raise UsageError("--call needs --base, and takes no --models, --changed or --no-times")
    if changed and base is None:
        raise UsageError("--changed needs --base")
    if no_times and base is None:
        raise UsageError("--no-times has no effect: --save and --baseline only count")
    for name in ("lengths", "level", "mode") if call or baseline else ():
        if is_given(context, name):
            known = "a function has none" if call else "the baseline has its own"
            raise UsageError(f"--{name} has no effect: {known}")
    if threshold is not None and (base is None or no_times):
        raise UsageError("--threshold has no effect: only times have one, and none are taken here")
    if save is not None and (strict or json_ or markdown or html or junit):
        raise UsageError("--save judges nothing: leave out --strict and other outputs")
    functions = None if call is None else parts(call, "--call")
    if wrong := [name for name in functions or () if not re.fullmatch(".+:.+", name)]:
        raise UsageError(f"--call {wrong[0]!r} is not of the form package.module:function")
    chosen = None if models is None else options.selections(models)
    measured, drawn = choose(device), options.read("seed", seed)
    planned: dict[str, Any] = {
        "lengths": axes.lengths(lengths),
        "level": options.read("level", level),
        "modes": options.read("mode", mode),
        "device": measured.name,
        "budget_s": axes.seconds(budget, "--budget"),
        "threshold": options.threshold(threshold, measured.threshold),
        "times": not no_times,
        "seed": drawn,
    }
    output.refuse_unwritable(save, markdown, html, junit)
    console.begin("starting the processes that measure")
    from attnbench.cli.starting import function_runner, runner
    from attnbench.gate.cases import CheckPlan
    from attnbench.gate.check import against_file, against_revision, check_functions, save_baseline
    from attnbench.gate.finding import traded

    plan = CheckPlan(**planned)
    starting = function_runner(drawn) if functions else runner(drawn, own=base is not None)
    unchanged = "nothing was kept, the repository is unchanged"
    with stoppable(lambda: unchanged), starting as measuring:
        if save is not None:
            chosen = chosen or options.selections("@all")
            cases, left_out = save_baseline(plan, save, chosen, measuring, __version__)
        elif base is not None and functions:
            report = check_functions(plan, base, functions, measuring)
        elif base is not None:
            report = against_revision(plan, base, chosen, measuring, only_changed=changed)
        else:
            assert baseline is not None
            report = against_file(plan, baseline, chosen, measuring)
    if save is not None:
        for reason in left_out:
            console.err().print(f"left out: {reason}")
        console.err().print(f"{many(cases, 'case')} written to {save}")
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
    from attnbench.render import check_ci, check_page

    if as_json:
        console.data(check_page.data(report, strict))
    else:
        show(report)
    page = check_page.page(report).encode()
    if markdown is not None:
        output.write(markdown, page)
    if html is not None:
        output.write(html, check_page.web_page(report))
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        # other steps of a job write the same file
        with output.writing(summary), open(summary, "ab") as file:
            file.write(page)
    if junit is not None:
        output.write(junit, check_ci.junit(report, strict))
    if os.environ.get("GITHUB_ACTIONS"):
        for line in check_ci.annotations(report):
            typer.echo(line, err=as_json)


def show(report: "Report") -> None:
    """The verdict, what fails and what is uncertain; then the tables."""
    from attnbench.render import check_page

    terminal = console.out()
    terminal.print(check_page.headline(report))
    for line in (check_page.compared(report), *check_page.remarks(report)):
        terminal.print(f"  {line}")
    for table in check_page.tables(report):
        terminal.print()
        console.show(table)
    for sentence in check_page.method(report):
        terminal.print(sentence)
