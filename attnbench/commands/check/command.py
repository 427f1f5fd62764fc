"""`attnbench check`: is anything slower or larger than it was?"""

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import typer

from attnbench.commands import console, options
from attnbench.commands.options import option, shared_option, switch
from attnbench.commands.stopping import stoppable
from attnbench.devices import choose
from attnbench.errors import UsageError
from attnbench.records import HelpPanel, Selection, selection, storage, units
from attnbench.running.request import axes, completion
from attnbench.running.request.conflicts import Conflict, refuse
from attnbench.running.request.options import read

if TYPE_CHECKING:
    from attnbench.commands.check.cases import CheckPlan
    from attnbench.commands.check.finding import CheckReport

AGAINST = "What to compare with"
JUDGE = "How to judge"
FILES = MappingProxyType({"markdown": "check.md", "junit": "junit.xml", "bmf": "bmf.json"})
MODELS = shared_option(
    "models",
    panel=HelpPanel.WHAT,
    text="As in sweep.",
    usual="all that a changed file affects",
)
FORMATS = option(
    "FORMATS",
    "Files to write: markdown, junit, bmf (Bencher's).",
    HelpPanel.OUTPUT,
    complete=completion.lists(FILES),
)
UNCHANGED = "nothing was kept, the repository is unchanged"


def check(
    context: typer.Context,
    base: str | None = option(
        "REVISION", "Git revision to compare with; both are measured now.", AGAINST
    ),
    baseline: Path | None = option(
        "FILE", "File of counts that --save wrote, on any machine.", AGAINST
    ),
    save: Path | None = option(
        "FILE", "Write the counts to a file; without --models, for @all.", AGAINST
    ),
    models: str | None = MODELS,
    call: str | None = option(
        "NAME,…", "Functions without arguments instead: package.module:function.", HelpPanel.WHAT
    ),
    lengths: str = shared_option("lengths", "128,512", HelpPanel.WHAT),
    level: str = shared_option("level", "attention", HelpPanel.WHAT),
    mode: str = shared_option("mode", "both", HelpPanel.WHAT),
    device: str = shared_option("device", "cpu", HelpPanel.WHAT),
    budget: str = option(
        "TIME", "Time for the whole check; what does not fit is unsure.", JUDGE, default="5m"
    ),
    prepare: str | None = option(
        "COMMAND", "Run in both trees first, to build them: 'pip install -e .'.", AGAINST
    ),
    threshold: str | None = option(
        "SHARE", "Ignore relative time changes below this.  [default: 0.02, on CUDA 0.03]", JUDGE
    ),
    no_times: bool = switch("--no-times", "Compare counts only, not times.", JUDGE),
    strict: bool = switch(
        "--strict", "Exit with 3 if unsure; larger counts fail even if faster.", JUDGE
    ),
    formats: str | None = FORMATS,
    out: Path = option("FOLDER", "Folder for these files.", HelpPanel.OUTPUT, default="."),
    json_: bool = options.as_json(HelpPanel.OUTPUT),
) -> None:
    """Compare code with another revision or with stored counts; exit code 1 if it is worse.

    Worse is slower, larger, failing, or computing something else. Times are CPU time of calls, not
    of imports. Processes keep freed memory, so that page faults add no noise; the times therefore
    miss part of what a copy into fresh memory costs.
    """
    refuse_useless(context)
    functions = named_functions(call)
    chosen = None if models is None else options.selections(models)
    plan = plan_of(context.params)
    files = {kind: out / FILES[kind] for kind in options.formats(formats, FILES)}
    storage.output.fill(out, {})
    storage.output.refuse_unwritable(save, *files.values())
    console.begin("starting the processes that measure")
    if save is not None:
        save_counts(plan, save, chosen or options.selections("@all"))
    else:
        report = compare(plan, baseline if base is None else base, chosen, functions, strict)
        publish(report, strict, json_, files)
        raise typer.Exit(report.exit_code(strict))


def refuse_useless(context: typer.Context) -> None:
    """Raises `UsageError` if options that were given contradict each other or have no effect."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    written = {name for name, of in sources.items() if of and of.name == "COMMANDLINE"}
    if len(written & {"base", "baseline", "save"}) != 1:
        raise UsageError("check needs one of --base REF, --baseline FILE and --save FILE")
    refuse(conflicts(written), written)


def conflicts(written: Collection[str]) -> Iterator[Conflict]:
    """Which of the options that were given contradict each other or have no effect."""
    of_cases = ("device", "lengths", "level", "mode")
    times = "base" in written and "no_times" not in written
    yield Conflict(
        given=("baseline", "models", "no_times", "save"),
        with_=("call",),
        reason="--call needs --base, and no {}",
    )
    yield Conflict(
        given=("no_times",),
        with_=("baseline", "save"),
        reason="{} has no effect: --save and --baseline only count",
    )
    yield Conflict(given=of_cases, with_=("call",), reason="{} has no effect: a function has none")
    yield Conflict(
        given=(*of_cases, "models"),
        with_=("baseline",),
        reason="{} has no effect: the baseline has its own",
    )
    yield Conflict(
        given=("prepare",), with_=("baseline", "save"), reason="{} has no effect without --base"
    )
    yield Conflict(
        given=("threshold",),
        with_=not times,
        reason="{} has no effect: no times are taken here",
    )
    yield Conflict(
        given=("formats", "json_", "out", "strict"),
        with_=("save",),
        reason="{} has no effect: --save judges nothing",
    )
    yield Conflict(
        given=("out",),
        with_="formats" not in written,
        reason="{} has no effect without --formats",
    )


def named_functions(call: str | None) -> list[Selection]:
    """The functions that `--call` names. Raises `UsageError`."""
    functions = [] if call is None else selection.parts(call, "--call")
    if wrong := [name for name in functions if not re.fullmatch(".+:.+", name)]:
        raise UsageError(f"--call {wrong[0]!r} is not of the form package.module:function")
    return [Selection(name=name) for name in functions]


def plan_of(options: Mapping[str, Any]) -> "CheckPlan":
    """The plan of the options. Raises `UsageError`."""
    from attnbench.commands.check.cases import CheckPlan
    from attnbench.commands.check.prepare import prepare_command

    kind = choose(options["device"])
    share = options["threshold"]
    typed = read({name: options[name] for name in ("lengths", "level", "mode", "budget")})
    return CheckPlan(
        lengths=typed["lengths"],
        level=typed["level"],
        modes=typed["mode"],
        device=kind.name,
        budget_s=typed["budget"],
        threshold=kind.threshold if share is None else axes.share(share, "--threshold"),
        times=not options["no_times"],
        prepare=prepare_command(options["prepare"], "--prepare"),
        results=options["call"] is not None,
    )


def save_counts(plan: "CheckPlan", file: Path, chosen: Sequence[Selection]) -> None:
    """Write the counts of the working tree to a file, and say what was left out."""
    from attnbench.commands.check.baseline import save_baseline
    from attnbench.commands.check.starting import runner

    with stoppable(lambda: UNCHANGED), runner() as measuring:
        cases, left_out = save_baseline(plan, file, chosen, measuring)
    for reason in left_out:
        console.err().print(f"left out: {reason}")
    console.err().print(f"{units.many(cases, 'case')} written to {file}")


def compare(
    plan: "CheckPlan",
    base: str | Path | None,
    chosen: Sequence[Selection] | None,
    functions: Sequence[Selection],
    strict: bool,
) -> "CheckReport":
    """The report on a comparison with a revision or a file.

    plan: what is measured of each case.
    base: the revision, as a text, or the path of the file.
    chosen: the mechanisms that were named; None: those that the change reaches.
    functions: the functions that were named, in place of mechanisms.
    strict: whether counts fail also where the time of their case fell.
    """
    from attnbench.commands.check.against import against_revision
    from attnbench.commands.check.baseline import against_file
    from attnbench.commands.check.finding import excuse_counts
    from attnbench.commands.check.starting import runner

    starting = runner(functions=bool(functions), trees_only=isinstance(base, str))
    with stoppable(lambda: UNCHANGED), starting as measuring:
        if isinstance(base, str):
            selections = functions or chosen
            report = against_revision(plan, base, selections, measuring, functions=bool(functions))
            return report if strict else excuse_counts(report)
        assert base is not None, "one of the two is given"
        return against_file(plan, base, measuring)


def publish(report: "CheckReport", strict: bool, as_json: bool, files: Mapping[str, Path]) -> None:
    """Print, write the files that were asked for, and annotate a job on GitHub.

    report: of the check.
    strict: whether what is unsure fails.
    as_json: whether to print data in place of text.
    files: where each format is written, by its name.
    """
    from attnbench.commands.check import ci as check_ci
    from attnbench.commands.check import page as check_page

    if as_json:
        console.data(check_page.data(report, strict))
    else:
        show(report)
    page = check_page.page(report)
    contents: Mapping[str, Callable[[], bytes]] = {
        "markdown": page.encode,
        "junit": lambda: check_ci.junit(report, strict),
        "bmf": lambda: check_ci.bmf(report),
    }
    for kind, file in files.items():
        storage.output.write(file, contents[kind]())
    append_summary(page)
    append_outputs(check_ci.outputs(report, strict))
    if os.environ.get("GITHUB_ACTIONS"):
        for line in check_ci.annotations(report):
            typer.echo(line, err=as_json)


def append_summary(page: str) -> None:
    """Append a page to the summary of a job on GitHub, if this is one."""
    append("GITHUB_STEP_SUMMARY", page)


def append_outputs(lines: str) -> None:
    """Append lines to what later steps of a job on GitHub read, if this is one."""
    append("GITHUB_OUTPUT", lines)


def append(variable: str, text: str) -> None:
    """Append a text to the file that an environment variable names, if it is set.

    Other steps of a job write the same file.
    """
    if file := os.environ.get(variable):
        with storage.output.writing(file), open(file, "a", encoding="utf-8") as stream:
            stream.write(text)


def show(report: "CheckReport") -> None:
    """The verdict, what fails and what is uncertain; then the tables."""
    from attnbench.commands.check import page as check_page

    terminal = console.out()
    terminal.print(check_page.headline(report))
    for line in check_page.lines(report):
        terminal.print(f"  {line}")
    for table in check_page.tables(report):
        terminal.print()
        console.show(table)
    for sentence in check_page.method(report):
        terminal.print(sentence)
