"""Checks of the project, such as `nox -s tests`; versions are in pyproject.toml."""

import nox

PROJECT = nox.project.load_toml("pyproject.toml")

nox.options.sessions = ["lint", "types", "tests"]
nox.options.reuse_existing_virtualenvs = True


def groups(*names: str) -> list[str]:
    """The requirements of dependency groups."""
    return [need for name in names for need in nox.project.dependency_groups(PROJECT, name)]


@nox.session
def tests(session: nox.Session) -> None:
    """All tests, with the public implementations for tests of parity."""
    session.install("-e", ".", *groups("test", "parity"))
    session.run("pytest", "-n", "logical", *session.posargs, env={"OMP_NUM_THREADS": "1"})


@nox.session
def modern(session: nox.Session) -> None:
    """Parity with releases of public implementations that older tests cannot use."""
    session.install("-e", ".", *groups("test", "modern"))
    session.run("pytest", "tests/parity_modern", *session.posargs, env={"OMP_NUM_THREADS": "1"})


@nox.session
def faults(session: nox.Session) -> None:
    """Long tests of kills, damage, unusual systems and thousands of inputs (about an hour)."""
    session.install("-e", ".", *groups("test"))
    session.run("pytest", "-m", "faults", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Lint and format, with ruff."""
    session.install(*groups("lint"))
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Strict types; pyproject.toml lists exceptions where torch lacks types."""
    session.install("-e", ".", *groups("types"))
    session.run("mypy")


@nox.session
def speed(session: nox.Session) -> None:
    """Speed against public implementations, on an idle machine (about 15 minutes)."""
    session.install("-e", ".", *groups("parity"))
    session.run("python", "-W", "ignore", "-m", "tests.benchmarks.speed", *session.posargs)
