"""A plug-in for pytest: is a test marked `attnbench` slower than in another revision?

With `--attnbench-base REF` all marked tests are functions of one check, and each fails if it is
slower. Without it they run as any other test.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from attnbench.gate.finding import Report

MARK = "attnbench"
CHECKED = pytest.StashKey["Report"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that request a check."""
    group = parser.getgroup(MARK, "performance against another revision")
    group.addoption(
        "--attnbench-base", metavar="REF", help="Time tests marked attnbench against this revision."
    )
    group.addoption(
        "--attnbench-budget", metavar="TIME", default="5m", help="Time for all of them. [5m]"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark; a check needs the machine for itself."""
    config.addinivalue_line("markers", f"{MARK}: timed against --attnbench-base; no arguments")
    if config.getoption("attnbench_base") and hasattr(config, "workerinput"):
        raise pytest.UsageError("--attnbench-base times one test after the other; leave out -n")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Fail if the test is slower than on base; the first marked test checks them all."""
    config, session = pyfuncitem.config, pyfuncitem.session
    if not config.getoption("attnbench_base") or not pyfuncitem.get_closest_marker(MARK):
        return None
    if why := unsuitable(pyfuncitem):
        pytest.fail(f"{pyfuncitem.name} cannot be timed: {why}", pytrace=False)
    from attnbench.render.check_page import sentence

    if CHECKED not in session.stash:
        session.stash[CHECKED] = checked(session)
    report = session.stash[CHECKED]
    root = top(pyfuncitem)
    for finding in report.findings:
        if finding.case == name(pyfuncitem, root):
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


def unsuitable(item: pytest.Function) -> str:
    """Why a test is not a function without arguments; empty if it is one."""
    is_function = item.cls is None and not item._fixtureinfo.argnames
    return "" if is_function else "it is a method, or it takes arguments or fixtures"


def checked(session: pytest.Session) -> "Report":
    """One check of all marked tests that will run."""
    from attnbench.cli.starting import runner
    from attnbench.errors import AttnbenchError
    from attnbench.gate.cases import CheckPlan
    from attnbench.gate.check import against_revision
    from attnbench.records import Selection
    from attnbench.workloads.axes import seconds

    items = [
        item
        for item in session.items
        if isinstance(item, pytest.Function)
        and item.get_closest_marker(MARK)
        and not unsuitable(item)
    ]
    base, budget = (session.config.getoption(f"attnbench_{of}") for of in ("base", "budget"))
    root = top(items[0])
    try:
        plan = CheckPlan(budget_s=seconds(budget, "--attnbench-budget"))
        asked = [Selection(name=name(item, root)) for item in items]
        with runner(functions=True) as measuring:
            return against_revision(plan, base, asked, measuring, root, functions=True)
    except AttnbenchError as error:
        raise pytest.UsageError(str(error)) from error


def top(item: pytest.Function) -> Path:
    """The repository of a test."""
    from attnbench.gate.repository import root

    return root(item.path.parent).resolve()


def name(item: pytest.Function, root: Path) -> str:
    """The name by which a check calls a test: `tests/test_it.py:test_one`."""
    return f"{item.path.resolve().relative_to(root).as_posix()}:{item.originalname}"
