"""A run of pytest in the tree of one side, and what its tests give to be timed.

pytest itself collects and runs the tests, so that fixtures of every scope, `conftest.py`, marks,
parameters and plug-ins are those of the tree. Whatever object the fixture `benchmark` is, calls of
it and of its `pedantic` are noticed through its class.
"""

import inspect
import io
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import redirect_stderr, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeGuard

import pytest

MARK = "attnbench"
FIXTURE = "benchmark"
# what became of a test
PASSED = "passed"
FAILED = "failed"
UNSUPPORTED = "unsupported"

# options of a user's run that this one must not follow: it writes no files, stops nowhere, and
# stays in one process
QUIET: Mapping[str, Any] = MappingProxyType({
    "attnbench_base": None,
    "benchmark_autosave": False,
    "benchmark_compare": None,
    "benchmark_compare_fail": None,
    "benchmark_histogram": None,
    "benchmark_json": None,
    "benchmark_save": None,
    "collectonly": False,
    "continue_on_collection_errors": True,  # a file that base cannot import is no reason for others
    "htmlpath": None,
    "lf": False,
    "failedfirst": False,
    "maxfail": 0,
    "newfirst": False,
    "numprocesses": 0,
    "pastebin": None,
    "report_log": None,
    "setuponly": False,
    "setupplan": False,
    "stepwise": False,
    "trace": False,
    "usepdb": False,
    "xmlpath": None,
})  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PytestFolders:
    """Where pytest runs, and with which options.

    `tree` is the source tree of a side; `root` is the repository whose paths `arguments` may name;
    `rootdir` and `folder` are pytest's root and its working folder, relative to the tree; `scratch`
    is a folder for temporary files.
    """

    tree: Path
    root: Path
    rootdir: str
    folder: str
    arguments: Sequence[str]
    scratch: Path

    def name(self, nodeid: str) -> str:
        """A test as a check names it: its node id, relative to the repository.

        A parameter may be a path of the tree; by its name the test is the same on both sides.
        """
        place, bracket, parameters = name_of(nodeid, self.rootdir).partition("[")
        return f"{place}{bracket}{parameters.replace(str(self.tree), str(self.root))}"

    def argument(self, name: str) -> str:
        """The tests of the function of this name, with all its parameters, for pytest here."""
        return f"{self.tree}/{name.partition('[')[0]}"

    def command(self) -> list[str]:
        """The arguments of the user's run, as they apply to this tree."""
        arguments = [
            argument.replace(str(self.root), str(self.tree)) for argument in self.arguments
        ]
        return [*arguments, f"--rootdir={self.tree / self.rootdir}"]


@dataclass(frozen=True, kw_only=True)
class TimedTest:
    """What a test gives to be timed: a call, and what runs untimed before and after each."""

    target: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    setup: Callable[[], Any] | None = None
    teardown: Callable[..., Any] | None = None

    def next_arguments(self) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """The arguments of the next call: those that the set-up returns, if there are any."""
        arguments = self.setup() if self.setup is not None else None
        if not arguments:
            return self.args, self.kwargs
        args, kwargs = arguments
        return args, kwargs


@dataclass(frozen=True, kw_only=True)
class TriedTest:
    """What became of a test that ran once: `PASSED` if it can be timed, else why it cannot."""

    outcome: str
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class NamedTests:
    """Tests that an argument of pytest names; a side may lack its file, or a test in it.

    `path` is a file or folder, `inside` names a class or test of the file, or nothing.
    """

    path: Path
    inside: str

    @classmethod
    def read(cls, argument: str) -> "NamedTests":
        """The tests that an argument names: `tests`, `tests/test_it.py::TestOne::test_it`."""
        place, _, inside = argument.partition("::")
        return cls(path=Path(place).absolute(), inside=inside)

    def has(self, item: pytest.Item) -> bool:
        """Whether it names this test."""
        if not item.path.is_relative_to(self.path):
            return False
        name = item.nodeid.partition("::")[2]
        starts = tuple(self.inside + mark for mark in ("[", "::"))
        return not self.inside or name == self.inside or name.startswith(starts)


def is_timed(item: pytest.Item) -> TypeGuard[pytest.Function]:
    """Whether a check times this test: it is marked, or uses the fixture `benchmark`."""
    if not isinstance(item, pytest.Function):
        return False
    return item.get_closest_marker(MARK) is not None or FIXTURE in item.fixturenames


def name_of(nodeid: str, rootdir: str) -> str:
    """A test as a check names it: its node id, relative to the repository that holds `rootdir`."""
    return nodeid if rootdir == "." else f"{rootdir}/{nodeid}"


class PytestRun:
    """A plug-in of one run of pytest, of all tests that are timed or of `only` one of them.

    What a test gives to be timed is passed to `seize`, with a function that goes on as the test
    would without this plug-in.
    """

    def __init__(self, place: PytestFolders, only: str = "") -> None:
        self.place = place
        self.only = only
        self.named_tests = list[NamedTests]()
        self.name = ""  # of the test that runs
        self.trials = dict[str, TriedTest]()
        self.unread = dict[str, str]()  # reasons of files that could not be collected
        self.error = ""  # why pytest ran nothing at all

    def seize(self, timed: TimedTest, go_on: Callable[[], Any]) -> Any:
        """What the test gets in return for what it gives to be timed."""
        raise NotImplementedError

    def main(self) -> None:
        """Run pytest until its end."""
        errors = io.StringIO()
        code: int | pytest.ExitCode = pytest.ExitCode.INTERNAL_ERROR
        try:
            with redirect_stderr(errors):
                code = pytest.main(self.place.command(), plugins=[self])
        except Exception as error:  # as of a warning that a suite makes an error
            errors.write(f"\npytest did not start: {error}")
        if code in (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.INTERNAL_ERROR):
            self.error = last_error(errors.getvalue()) or f"pytest ended with exit code {int(code)}"
        shutil.rmtree(self.basetemp, ignore_errors=True)

    @property
    def basetemp(self) -> Path:
        """The folder of this process for the temporary folders of tests."""
        return self.place.scratch / f"pytest-{os.getpid()}"

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> Generator[None, Any, Any]:
        """Choose what runs, and that nothing is written but temporary files."""
        for name, value in QUIET.items():
            if hasattr(config.option, name):
                setattr(config.option, name, value)
        config.option.basetemp = str(self.basetemp)
        if self.only:
            config.args = [self.place.argument(self.only)]
        elif not config.option.pyargs:
            self.named_tests = [NamedTests.read(argument) for argument in config.args]
            places = [str(tests.path) for tests in self.named_tests if tests.path.exists()]
            config.args = list(dict.fromkeys(places))
        return (yield)

    @pytest.hookimpl(optionalhook=True)
    def pytest_timeout_set_timer(self) -> bool:
        """Let pytest-timeout end no test: a check has limits of its own."""
        return True

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out what is not timed."""
        items[:] = [item for item in items if is_timed(item) and self.chooses(item)]

    def chooses(self, item: pytest.Item) -> bool:
        """Whether this test is to run."""
        if self.only:
            return self.place.name(item.nodeid) == self.only
        return not self.named_tests or any(tests.has(item) for tests in self.named_tests)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep why a file or folder could not be collected."""
        if report.failed:
            self.unread[self.place.name(report.nodeid)] = last_error(report.longreprtext)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Note which test runs."""
        self.name = self.place.name(item.nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, Any, Any]:
        """Notice calls of the fixture `benchmark`."""
        fixture = yield
        if fixturedef.argname == FIXTURE:
            notice(type(fixture), self.seize)
        return fixture

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> bool | None:
        """Give the body of a marked test to be timed, if it does not use the fixture."""
        if FIXTURE in pyfuncitem.fixturenames or inspect.iscoroutinefunction(pyfuncitem.obj):
            return None
        names = pyfuncitem._fixtureinfo.argnames
        arguments = {name: pyfuncitem.funcargs[name] for name in names}
        body = TimedTest(target=pyfuncitem.obj, kwargs=arguments)
        self.seize(body, lambda: pyfuncitem.obj(**arguments))
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what became of a test, from the first phase in which it did not pass."""
        name = self.place.name(report.nodeid)
        if report.when == "call" or not report.passed:
            trial = trial_of(report)
            if name not in self.trials or self.trials[name].outcome == PASSED:
                self.trials[name] = trial


class Trying(PytestRun):
    """A run that lets each test run once as it would without a check."""

    def __init__(self, place: PytestFolders, only: str = "") -> None:
        super().__init__(place, only)
        self.giving_tests = set[str]()  # tests that have given something to be timed
        self.unfit = dict[str, str]()  # reasons why that cannot be timed
        self.idle = dict[str, str]()  # reasons of tests that give nothing, should they do so

    def seize(self, timed: TimedTest, go_on: Callable[[], Any]) -> Any:
        """Go on, and note whether the result says that nothing has been computed yet."""
        returned = go_on()
        self.giving_tests.add(self.name)
        if isinstance(returned, Awaitable | AsyncIterator | Generator):
            kind = type(returned).__name__
            self.unfit[self.name] = f"what it times returns a {kind} that nobody runs"
        return returned

    def main(self) -> None:
        """Run the tests; one that passes and has given nothing to be timed cannot be timed."""
        super().main()
        for name, trial in self.trials.items():
            reason = self.unfit.get(name) or ("" if name in self.giving_tests else self.idle[name])
            if trial.outcome == PASSED and reason:
                self.trials[name] = TriedTest(outcome=UNSUPPORTED, reason=reason)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Keep of each test what it means if it gives nothing to be timed."""
        for item in session.items:
            self.idle[self.place.name(item.nodeid)] = why_idle(item)


class Collecting(PytestRun):
    """A run that ends once all tests are collected; each of them counts as passed."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run no test, and keep their names."""
        self.trials = {
            self.place.name(item.nodeid): TriedTest(outcome=PASSED) for item in session.items
        }
        return True


class Timing(PytestRun):
    """A run of one test, in which `measure` is called with what it gives to be timed.

    The test ends there, and its fixtures are taken down.
    """

    def __init__(
        self, place: PytestFolders, only: str, measure: Callable[[TimedTest], None]
    ) -> None:
        super().__init__(place, only)
        self.measure = measure

    def seize(self, timed: TimedTest, go_on: Callable[[], Any]) -> Any:
        """Measure, then leave the test."""
        self.measure(timed)
        pytest.skip("it has been timed")


class Holding(Timing):
    """A run that stops once all tests are collected, and calls `hold`, which ends the process.

    Processes that it forks run one test each, with `run_one`.
    """

    session: pytest.Session

    def __init__(
        self, place: PytestFolders, measure: Callable[[TimedTest], None], hold: Callable[[], None]
    ) -> None:
        super().__init__(place, "", measure)
        self.hold = hold

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run no test here."""
        self.session = session
        self.hold()
        return True

    def run_one(self, name: str) -> bool:
        """Run a test and take its fixtures down, of every scope; whether there is this test."""
        for item in self.session.items:
            if self.place.name(item.nodeid) == name:
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
                return True
        return False


def why_idle(item: pytest.Item) -> str:
    """Why a test that ran has given nothing to be timed."""
    if FIXTURE in getattr(item, "fixturenames", ()):
        return f"it gives nothing to its fixture {FIXTURE}"
    if inspect.iscoroutinefunction(getattr(item, "obj", None)):
        return f"it is asynchronous; give what is to be timed to the fixture {FIXTURE}"
    return f"pytest does not call it as a function; use the fixture {FIXTURE}"


def notice(kind: type, seize: Callable[[TimedTest, Callable[[], Any]], Any]) -> None:
    """Pass what instances of the class are called with to `seize`; once for each class.

    A class that is not written in Python stays as it is.
    """
    if not any("__call__" in vars(parent) for parent in kind.__mro__):
        return
    call: Any = kind.__call__
    pedantic: Any = getattr(kind, "pedantic", None)
    if hasattr(call, "noticed"):
        return

    def call_noticed(fixture: Any, target: Any, /, *args: Any, **kwargs: Any) -> Any:
        timed = TimedTest(target=target, args=args, kwargs=kwargs)
        return seize(timed, lambda: call(fixture, target, *args, **kwargs))

    def pedantic_noticed(
        fixture: Any, target: Any, args: Any = (), kwargs: Any = None, *more: Any, **options: Any
    ) -> Any:
        hooks = dict(zip(("setup", "teardown"), more, strict=False)) | options
        timed = TimedTest(
            target=target,
            args=tuple(args),
            kwargs=dict(kwargs or {}),
            setup=hooks.get("setup"),
            teardown=hooks.get("teardown"),
        )
        return seize(timed, lambda: pedantic(fixture, target, args, kwargs or {}, *more, **options))

    call_noticed.noticed = True  # type: ignore[attr-defined]
    with suppress(TypeError):
        setattr(kind, "__call__", call_noticed)  # noqa: B010
        if pedantic is not None:
            setattr(kind, "pedantic", pedantic_noticed)  # noqa: B010


def trial_of(report: pytest.TestReport) -> TriedTest:
    """What a report says of a test."""
    if hasattr(report, "wasxfail"):
        passes = "it passes, though it is" if report.passed else "it is"
        return TriedTest(outcome=UNSUPPORTED, reason=f"{passes} expected to fail")
    if report.skipped:
        skip = report.longrepr
        reason = skip[2] if isinstance(skip, tuple) else str(skip)
        return TriedTest(outcome=UNSUPPORTED, reason=f"skips itself: {first_line(reason)}")
    if report.failed:
        crash = getattr(report.longrepr, "reprcrash", None)
        reason = first_line(crash.message) if crash else last_error(report.longreprtext)
        phase = "" if report.when == "call" else f" in its {report.when}"
        return TriedTest(outcome=FAILED, reason=f"failed{phase}: {reason}")
    return TriedTest(outcome=PASSED)


def first_line(text: str) -> str:
    """The first line of a text without pytest's own word for a skip."""
    lines = text.strip().splitlines()
    return lines[0].removeprefix("Skipped: ") if lines else ""


def last_error(text: str) -> str:
    """The line of a traceback as pytest prints it that says what was raised, or the last one."""
    lines = [line.strip() for line in text.strip().splitlines()]
    raised = [line[1:].strip() for line in lines if line.startswith("E  ")]
    return raised[-1] if raised else (lines[-1] if lines else "")
