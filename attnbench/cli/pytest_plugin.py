"""A plug-in for pytest: are tests slower than in another revision?

With `--attnbench-base REF`, the tests that are marked `attnbench` or use the fixture `benchmark`
are the cases of one check, and each fails if it is slower. Of a test with this fixture, only what
it gives to the fixture is timed. Without the option they run as any other test; the fixture is that
of pytest-benchmark, where this is installed.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import pytest

if TYPE_CHECKING:
    from attnbench.gate.finding import Report
    from attnbench.records import Selection

MARK, FIXTURE = "attnbench", "benchmark"
CHECKED = pytest.StashKey["Report"]()
# of classes, and what their tests would need first
SET_UPS = ("setup_method", "setup_class", "setUp")


class Fixture:
    """The fixture, where pytest-benchmark does not offer it."""

    @pytest.fixture
    def benchmark(self) -> Any:
        """Calls what it is given."""
        return lambda function, *args, **kwargs: function(*args, **kwargs)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that request a check."""
    group = parser.getgroup(MARK, "performance against another revision")
    group.addoption(
        "--attnbench-base",
        metavar="REF",
        help="Time tests that are marked attnbench, or use benchmark, against this revision.",
    )
    group.addoption(
        "--attnbench-budget", metavar="TIME", default="5m", help="Time for all of them. [5m]"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark and the fixture; a check needs the machine for itself."""
    config.addinivalue_line("markers", f"{MARK}: timed against --attnbench-base")
    if not any(map(config.pluginmanager.hasplugin, (FIXTURE, "pytest_benchmark.plugin"))):
        config.pluginmanager.register(Fixture())
    if config.getoption("attnbench_base") and hasattr(config, "workerinput"):
        raise pytest.UsageError("--attnbench-base times one test after the other; leave out -n")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave the fixture out where this process does not run the test."""
    if is_checked(item) and FIXTURE in item.fixturenames:
        item.funcargs[FIXTURE] = None


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Fail if the test is slower than on base; the first one checks them all."""
    session = pyfuncitem.session
    if not is_checked(pyfuncitem):
        return None
    if why := unsuitable(pyfuncitem):
        pytest.fail(f"{pyfuncitem.name} cannot be timed: {why}", pytrace=False)
    from attnbench.render.check_page import sentence

    if CHECKED not in session.stash:
        session.stash[CHECKED] = checked(session)
    report, case = session.stash[CHECKED], str(selection(pyfuncitem, top(pyfuncitem)))
    for finding in report.findings:
        if finding.case == case:
            if finding.fails or finding.unmeasured or finding in report.unchecked:
                pytest.fail(sentence(finding), pytrace=False)
            if not finding.decided:
                pytest.skip(sentence(finding))
    return True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the overall verdict of the check."""
    session = getattr(terminalreporter, "_session", None)
    if session is not None and CHECKED in session.stash:
        from attnbench.render.check_page import headline

        terminalreporter.write_line(f"attnbench: {headline(session.stash[CHECKED])}")


def is_checked(item: pytest.Item) -> TypeGuard[pytest.Function]:
    """Whether a check is asked for and times this test."""
    if not (item.config.getoption("attnbench_base") and isinstance(item, pytest.Function)):
        return False
    return item.get_closest_marker(MARK) is not None or FIXTURE in item.fixturenames


def arguments(item: pytest.Function) -> dict[str, Any]:
    """The arguments of `parametrize`, without those for fixtures."""
    given = dict[str, Any]()
    for mark in item.iter_markers("parametrize"):
        names = mark.args[0].split(",") if isinstance(mark.args[0], str) else mark.args[0]
        if not mark.kwargs.get("indirect"):
            given |= {name: item.callspec.params[name] for name in map(str.strip, names)}
    return given


def unsuitable(item: pytest.Function) -> str:
    """Why a test cannot be called in another process; empty if it can."""
    given = arguments(item)
    if other := {*item._fixtureinfo.argnames} - {*given, FIXTURE}:
        return f"it takes the fixture {min(other)}"
    if any(hasattr(item.cls, name) for name in SET_UPS):
        return "its class has a set-up"
    plain = (str, int, float, type(None))  # which JSON keeps as they are
    odd = [name for name, value in given.items() if not isinstance(value, plain)]
    return f"its parameter {odd[0]} is neither a number nor a text" if odd else ""


def checked(session: pytest.Session) -> "Report":
    """One check of all tests of this kind that will run."""
    from attnbench.cli.starting import runner
    from attnbench.errors import AttnbenchError
    from attnbench.gate.cases import CheckPlan
    from attnbench.gate.check import against_revision
    from attnbench.workloads.axes import seconds

    items = [item for item in session.items if is_checked(item) and not unsuitable(item)]
    base, budget = (session.config.getoption(f"attnbench_{of}") for of in ("base", "budget"))
    root = top(items[0])
    try:
        plan = CheckPlan(budget_s=seconds(budget, "--attnbench-budget"))
        asked = [selection(item, root) for item in items]
        with runner(functions=True) as measuring:
            return against_revision(plan, base, asked, measuring, root, functions=True)
    except AttnbenchError as error:
        pytest.exit(f"attnbench: {error}", returncode=2)


def top(item: pytest.Function) -> Path:
    """The repository of a test."""
    from attnbench.gate.repository import root

    return root(item.path.parent).resolve()


def selection(item: pytest.Function, root: Path) -> "Selection":
    """A test as a check names it: `tests/test_it.py:TestOne.test_it[n=3]`."""
    from attnbench.records import Selection

    classes = [node.name for node in item.listchain() if isinstance(node, pytest.Class)]
    place, name = item.path.resolve().relative_to(root), ".".join([*classes, item.originalname])
    return Selection(name=f"{place.as_posix()}:{name}", options=tuple(arguments(item).items()))
