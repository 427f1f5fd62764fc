"""A plug-in for pytest: are tests slower than in another revision?

With `--attnbench-base REF`, the tests that are marked `attnbench` or use the fixture `benchmark`
are the cases of one check. Before they run, processes of their own time them on both sides; then
every test runs as it would without the option, and one that passes but is slower fails. Of a test
with this fixture, only what it gives to the fixture is timed. What cannot be timed is named at the
end, with the reason. The fixture is that of pytest-benchmark, or of pytest-codspeed, where one of
them is installed.
"""

import re
import sys
import time
from collections.abc import Generator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.config import default_plugins
from _pytest.junitxml import xml_key

from attnbench.commands.check.benchmark_fixture import StandIn, add_options, offers_fixture
from attnbench.measuring import pytest_run

if TYPE_CHECKING:
    from attnbench.commands.check.finding import CheckReport, Finding
    from attnbench.commands.check.measuring import Runner

STANDS_IN = pytest.StashKey[bool]()
DISTRIBUTED = pytest.StashKey[bool]()
PASSES = pytest.StashKey[bool]()  # whether any test that is to be timed has passed
COMPARISON = pytest.StashKey["ComparedTests"]()
PROBLEM = pytest.StashKey[str]()  # why a file for a job on GitHub could not be written
BASE_OPTION = "--attnbench-base"
BUDGET_OPTION = "--attnbench-budget"
PREPARE_OPTION = "--attnbench-prepare"
STRICT_OPTION = "--attnbench-strict"
FOREVER_S = 1e9
# of plug-ins, by the name that they register under: what makes a measuring run quick and quiet
QUICK = (
    ("cacheprovider", ("-o", "cache_dir=$ATTNBENCH_FOLDER/cache")),
    ("pytest_cov", ("--no-cov",)),
    (
        "benchmark",
        (
            "--benchmark-min-rounds=1",
            "--benchmark-max-time=0.000001",
            "--benchmark-min-time=0.000001",
            "--benchmark-warmup=off",
        ),
    ),
)


@dataclass(frozen=True, kw_only=True)
class ComparedTests:
    """What a check says of tests, by their names.

    `untimed` has the reasons of those that could not be timed on head; `error` says why there is
    no `report`. Names are relative to the repository, which holds `rootdir`, pytest's own root.
    """

    report: "CheckReport | None" = None
    rootdir: str = "."
    untimed: Mapping[str, str] = field(default_factory=dict)
    error: str = ""

    def findings(self, item: pytest.Item) -> tuple["Finding", ...]:
        """What was found of a test."""
        name = pytest_run.name_of(item.nodeid, self.rootdir)
        findings = self.report.findings if self.report is not None else ()
        return tuple(finding for finding in findings if finding.case == name)

    @property
    def timed_findings(self) -> tuple["Finding", ...]:
        """What was found of each test that was to be timed on both sides."""
        from attnbench.records.metrics import TIME

        findings = self.report.findings if self.report is not None else ()
        return tuple(finding for finding in findings if finding.metric == TIME)

    @property
    def is_uncertain(self) -> bool:
        """Whether a test is unsure, or is there on base alone."""
        return self.report is not None and bool(
            self.report.unsure_findings or self.report.lost_findings
        )

    @property
    def compares(self) -> bool:
        """Whether any test was timed on both sides, be it in too few pairs for a verdict."""
        return any(is_compared(finding) for finding in self.timed_findings)


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a user's pytest runs: in folders relative to `root`, the repository."""

    root: Path
    rootdir: str
    folder: str
    arguments: tuple[str, ...]

    @classmethod
    def of(cls, config: pytest.Config, root: Path) -> "Place":
        """The place of a session. Raises `UsageError` if pytest's root lies elsewhere."""
        from attnbench.errors import UsageError

        invocation = config.invocation_params
        rootdir = config.rootpath.resolve()
        folder = Path(invocation.dir).resolve()
        if not rootdir.is_relative_to(root):
            raise UsageError(
                f"pytest's root {rootdir} is outside the repository {root} of {BASE_OPTION}; give"
                " another with --rootdir"
            )
        if not folder.is_relative_to(root):
            raise UsageError(f"{folder} is outside the repository {root}; call pytest from there")
        quick = [switches for name, switches in QUICK if config.pluginmanager.hasplugin(name)]
        return cls(
            root=root,
            rootdir=rootdir.relative_to(root).as_posix(),
            folder=folder.relative_to(root).as_posix(),
            arguments=(*map(str, invocation.args), *chain.from_iterable(quick)),
        )

    def about(self) -> dict[str, Any]:
        """What a measuring process is told, and the modules of pytest that all of them share."""
        plugins = [f"_pytest.{name}" for name in default_plugins if name != "pytester"]
        shared = [name for name in ("pytest", *plugins) if name in sys.modules]
        return {**asdict(self), "root": str(self.root), "modules": shared}

    def name(self, nodeid: str) -> str:
        """A test as a check names it."""
        return pytest_run.name_of(nodeid, self.rootdir)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that request a check."""
    group = parser.getgroup(pytest_run.MARK, "performance against another revision")
    group.addoption(
        BASE_OPTION,
        metavar="REF",
        help="Time tests that are marked attnbench, or use benchmark, against this revision.",
    )
    group.addoption(BUDGET_OPTION, metavar="TIME", default="5m", help="Time for all of them. [5m]")
    group.addoption(
        PREPARE_OPTION,
        metavar="COMMAND",
        help="Run in both trees before they are compared, to build what git ignores:"
        " 'pip install -e .'.",
    )
    group.addoption(
        STRICT_OPTION,
        action="store_true",
        help="Exit with 3 if a test is unsure or gone from head, as attnbench check --strict does.",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, parser: pytest.Parser) -> None:
    """Stand in for pytest-benchmark, where nothing that is loaded offers its fixture."""
    early_config.stash[STANDS_IN] = not offers_fixture(early_config.pluginmanager)
    if early_config.stash[STANDS_IN]:
        add_options(parser)
        early_config.pluginmanager.register(StandIn())


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, Any, Any]:
    """Run tests in this process, since a check times one after the other."""
    if is_asked(config):
        options = config.option
        config.stash[DISTRIBUTED] = bool(getattr(options, "numprocesses", None)) or (
            getattr(options, "dist", "no") != "no" and bool(getattr(options, "tx", None))
        )
        if hasattr(options, "numprocesses"):
            options.numprocesses = 0
    return (yield)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marks, and refuse what cannot be understood."""
    config.addinivalue_line("markers", f"{pytest_run.MARK}: timed against {BASE_OPTION}")
    if config.stash.get(STANDS_IN, False):
        config.addinivalue_line("markers", "benchmark: settings of a benchmark")
    if not is_asked(config):
        return
    from attnbench.commands.check.prepare import prepare_command
    from attnbench.errors import UsageError
    from attnbench.running.request.axes import seconds

    if not config.getoption("attnbench_base").strip():
        raise pytest.UsageError(
            f"{BASE_OPTION} is empty: give a branch, tag or commit, such as origin/main; where it"
            " comes from a variable, that is not set"
        )
    try:
        seconds(config.getoption("attnbench_budget"), BUDGET_OPTION)
        prepare_command(config.getoption("attnbench_prepare"), PREPARE_OPTION)
    except UsageError as error:
        raise pytest.UsageError(str(error)) from error


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, Any, Any]:
    """Check all tests that are timed before any test runs."""
    stops = session.testsfailed and not session.config.option.continue_on_collection_errors
    if is_asked(session.config) and not session.config.option.collectonly and not stops:
        items = [item for item in session.items if pytest_run.is_timed(item)]
        if items:
            session.config.stash[COMPARISON] = compare_tests(session.config, items)
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, pytest.TestReport]:
    """Let a test that passes fail if it is slower, and count as skipped if that is unknown."""
    report: pytest.TestReport = yield
    comparison = item.config.stash.get(COMPARISON, None)
    may_fail = report.when == "call" and report.passed and not hasattr(report, "wasxfail")
    if comparison is None or not may_fail or not pytest_run.is_timed(item):
        return report
    from attnbench.commands.check.page import sentence

    item.config.stash[PASSES] = True
    for finding in comparison.findings(item):
        if finding.fails:
            report.outcome = "failed"
            report.longrepr = with_pytest_options(sentence(finding))
            break
        if not finding.is_decided and not is_added(finding):
            report.outcome = "skipped"
            file, line, _ = item.reportinfo()
            reason = f"Skipped: {with_pytest_options(sentence(finding))}"
            report.longrepr = (str(file), (line or 0) + 1, reason)
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Exit with 2 where tests passed that were to be compared, and none was.

    If strict, with 3 where what could not be decided or is gone is all that speaks against success.
    """
    comparison = session.config.stash.get(COMPARISON, None)
    if comparison is None:
        return
    publish(comparison, session.config)
    if session.exitstatus:
        return
    if session.config.stash.get(PASSES, False) and is_void(comparison):
        session.exitstatus = 2
    elif session.config.getoption("attnbench_strict") and comparison.is_uncertain:
        session.exitstatus = 3


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the overall verdict of the check, and what was not timed."""
    config = terminalreporter.config
    if config.stash.get(DISTRIBUTED, False):
        text = "tests ran one after the other: -n has no effect with " + BASE_OPTION
        terminalreporter.write_line(f"{pytest_run.MARK}: {text}")
    if (comparison := config.stash.get(COMPARISON, None)) is not None:
        for line in summary(comparison):
            terminalreporter.write_line(f"{pytest_run.MARK}: {line}")
        if problem := config.stash.get(PROBLEM, ""):
            terminalreporter.write_line(f"{pytest_run.MARK}: {problem}")


def publish(comparison: ComparedTests, config: pytest.Config) -> None:
    """Say what only the report of a check has: to a job on GitHub, and to pytest's JUnit file."""
    from attnbench.commands.check import ci as check_ci
    from attnbench.commands.check import page as check_page
    from attnbench.commands.check.command import append_outputs, append_summary
    from attnbench.errors import StoreError

    report = comparison.report
    if report is None:
        return
    if (xml := config.stash.get(xml_key, None)) is not None:
        for finding in filter(is_gone, report.findings):
            xml.add_global_property("attnbench: gone from head", finding.case)
    try:
        append_summary(with_pytest_options(check_page.page(report)))
        strict = config.getoption("attnbench_strict")
        append_outputs(with_pytest_options(check_ci.outputs(report, strict)))
    except StoreError as error:
        config.stash[PROBLEM] = str(error)


def is_asked(config: pytest.Config) -> bool:
    """Whether a check is asked for."""
    return config.getoption("attnbench_base") is not None


def is_added(finding: "Finding") -> bool:
    """Whether it says that base has no such test."""
    from attnbench.commands.check.finding import CheckAnswer

    return finding.answer is CheckAnswer.ADDED


def is_gone(finding: "Finding") -> bool:
    """Whether it says that head has no such test."""
    from attnbench.commands.check.finding import CheckAnswer

    return finding.answer is CheckAnswer.GONE


def is_compared(finding: "Finding") -> bool:
    """Whether it tells a time of both sides, or a verdict."""
    return finding.is_decided or None not in (finding.base, finding.head)


def share_texts(comparison: ComparedTests) -> Generator[str, None, None]:
    """How many of all tests were timed on both sides and got a verdict, where any did not."""
    timed = comparison.timed_findings
    uncompared = [finding for finding in timed if not is_compared(finding)]
    decided = sum(finding.is_decided for finding in timed)
    if decided < len(timed):
        text = f"{len(timed) - len(uncompared)} of {len(timed)} tests were timed on both sides"
        yield f"{text}, {decided} got a verdict"
    for finding in uncompared:
        yield f"not compared: {finding.case}: {with_pytest_options(finding.reasons)}"


def is_void(comparison: ComparedTests) -> bool:
    """Whether nothing was compared, though there was something on both sides."""
    findings = comparison.report.findings if comparison.report is not None else ()
    return not comparison.compares and not (findings and all(map(is_added, findings)))


def with_pytest_options(text: str) -> str:
    """A text of a check with the names that its options have in pytest."""
    return re.sub(r"(?<![\w-])--(base|budget|prepare)\b", r"--attnbench-\1", text)


def summary(comparison: ComparedTests) -> Generator[str, None, None]:
    """The verdict, then the tests that were not compared, each with its reason."""
    from attnbench.commands.check.page import headline, sentence

    report = comparison.report
    if comparison.error:
        yield f"NOT CHECKED: {with_pytest_options(comparison.error)}"
    elif report is not None:
        if comparison.compares and not any(f.fails or f.is_decided for f in report.findings):
            reason = next((f.reasons for f in comparison.timed_findings if f.reasons), "")
            yield f"UNSURE: no test got a verdict; {with_pytest_options(reason)}".removesuffix("; ")
        else:
            yield with_pytest_options(headline(report))
        yield f"{report.head} against {report.base}"
        yield from share_texts(comparison)
        yield from map(with_pytest_options, report.notes)
        for finding in filter(is_added, report.findings):
            yield f"added, so there is nothing to compare with: {finding.case}"
        for finding in filter(is_gone, report.findings):
            yield sentence(finding)
    elif comparison.untimed:
        yield "NOT CHECKED: no test could be timed"
    for name, reason in comparison.untimed.items():
        yield f"not timed: {name}: {reason}"


def compare_tests(config: pytest.Config, items: list[pytest.Function]) -> ComparedTests:
    """A check of these tests; where it cannot be made, the reason.

    Ends the session where what was asked cannot be understood.
    """
    from attnbench.commands.check.repository import commit, root
    from attnbench.commands.check.starting import runner
    from attnbench.errors import AttnbenchError, UsageError

    try:
        top = root(config.rootpath).resolve()
        commit(top, config.getoption("attnbench_base"))
        place = Place.of(config, top)
        names = tuple(dict.fromkeys(place.name(item.nodeid) for item in items))
        with runner(tests=place.about()) as measuring:
            comparison = check_tests(config, names, place, measuring)
    except UsageError as error:
        pytest.exit(f"attnbench: {with_pytest_options(str(error))}", returncode=2)
    except AttnbenchError as error:
        return ComparedTests(error=str(error))
    return replace(comparison, rootdir=place.rootdir)


def check_tests(
    config: pytest.Config, names: tuple[str, ...], place: "Place", runner: "Runner"
) -> ComparedTests:
    """A check of those of these tests that can be timed, within the budget.

    config: of the user's session.
    names: of the tests, as a check names them.
    place: where pytest runs.
    runner: of the measuring processes.
    Raises `AttnbenchError`.
    """
    from attnbench.commands.check.against import against_revision
    from attnbench.commands.check.cases import CheckPlan
    from attnbench.errors import CannotRun
    from attnbench.measuring import pytest_worker
    from attnbench.records import Selection
    from attnbench.records.messages import Failure, RunTests
    from attnbench.running.request.axes import seconds

    budget_s = seconds(config.getoption("attnbench_budget"), BUDGET_OPTION)
    begun = time.monotonic()
    runner.observe("running the tests once")
    with runner.within(budget_s), runner.loaded_process(pytest_worker.HEAD, place.root) as worker:
        answer = worker.ask(RunTests(), budget_s or FOREVER_S)
    if isinstance(answer, Failure):
        raise CannotRun(f"the tests did not run in a process of their own: {answer.reason}")
    trials = pytest_worker.kept_trials(runner.server.folder, pytest_worker.HEAD)
    untimed = dict[str, str]()
    for name in names:
        trial = trials.of(name)
        if trial is None or trial.outcome != pytest_run.PASSED:
            untimed[name] = trial.reason if trial else "it does not run in a process of its own"
    chosen = [Selection(name=name) for name in names if name not in untimed]
    if not chosen:
        return ComparedTests(untimed=untimed)
    spent_s = time.monotonic() - begun
    left_s = None if budget_s is None else max(1.0, budget_s - spent_s)
    prepare = config.getoption("attnbench_prepare") or ""
    plan = CheckPlan(budget_s=left_s, spent_s=spent_s, prepare=prepare)
    base = config.getoption("attnbench_base")
    report = against_revision(plan, base, chosen, runner, place.root, functions=True, tests=names)
    return ComparedTests(report=with_failing_times_only(report), untimed=untimed)


def with_failing_times_only(report: "CheckReport") -> "CheckReport":
    """The report in which only times fail.

    A test that ran by itself, and not beside the other side, may have met what only one can have,
    such as a port; one that fails by itself is red without a check.
    """
    from attnbench.commands.check.finding import CheckAnswer

    findings = tuple(
        replace(finding, answer=CheckAnswer.NOT_KNOWN)
        if finding.answer is CheckAnswer.BREAKS
        else finding
        for finding in report.findings
    )
    return replace(report, findings=findings)
