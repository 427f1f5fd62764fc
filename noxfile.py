"""Checks of the project, such as `nox -s tests`; versions are in pyproject.toml."""

import json
import re
from pathlib import Path

import nox

PROJECT = nox.project.load_toml("pyproject.toml")
NEEDS = PROJECT["project"]["dependencies"]
VERSIONS = "tests/versions.txt"
# tests that stand on Python, git and this package alone: other releases change nothing in them
OWN = (
    *("tests/faults", "tests/commands/check", "tests/attention/checks", "tests/inputs"),
    *("tests/running", "tests/devices/test_system.py", "tests/measuring/test_exploits.py"),
    *("tests/analysis/test_rounds.py", "tests/analysis/test_standings.py"),
    "tests/analysis/test_truth.py",
    *("tests/commands/judge", "tests/commands/sweeping", "tests/commands/test_disturbed.py"),
    *("tests/commands/test_stopping.py", "tests/commands/test_unwritable.py"),
    *("tests/mechanisms/test_own_code_is_not_odd.py", "tests/report/test_any_verb.py"),
    *("tests/report/test_browser.py", "tests/report/test_papers.py"),
    *("tests/report/test_two_columns.py", "tests/test_additions.py", "tests/test_architecture.py"),
    *("tests/test_benchmarks.py", "tests/test_package.py", "tests/test_planted.py"),
    "tests/test_readme.py",
)

nox.options.sessions = ["lint", "types", "tests"]
nox.options.reuse_existing_virtualenvs = True


def groups(*names: str) -> list[str]:
    """The requirements of dependency groups."""
    return [need for name in names for need in nox.project.dependency_groups(PROJECT, name)]


@nox.session
def tests(session: nox.Session) -> None:
    """The usual tests, with versions that are known to pass together."""
    install(session, "-c", VERSIONS)
    run(session)


@nox.session
def everything(session: nox.Session) -> None:
    """These and longer tests, all but those of `faults` (half an hour)."""
    install(session, "-c", VERSIONS)
    run(session, "-m", "not faults")


@nox.session(python=["3.12", "3.13", "3.14"])
def python(session: nox.Session) -> None:
    """The usual tests with a newer Python, where it is installed: `nox -s python-3.13`."""
    install(session, "-c", VERSIONS)
    run(session)


@nox.session
def newest(session: nox.Session) -> None:
    """Tests with what pip resolves today, if any release is newer than those of `tests`.

    All the usual ones but `OWN`. Warnings of new releases are no errors.
    """
    pinned = {line.lower() for line in Path(VERSIONS).read_text().splitlines()}
    newer = resolved(session) - pinned
    if newer:
        session.log(f"newer than in {VERSIONS}: {', '.join(sorted(newer))}")
        install(session, "--upgrade")
        run(session, "-W", "default", *(f"--ignore={path}" for path in OWN))
    else:
        session.log(f"what the package needs is as new as in {VERSIONS}, which `tests` installs")


@nox.session
def oldest(session: nox.Session) -> None:
    """The usual tests but `OWN` with the lowest versions that pyproject.toml allows."""
    install(session, *(need.replace(">=", "==") for need in NEEDS))
    run(session, "-W", "default", *(f"--ignore={path}" for path in OWN))


@nox.session
def versions(session: nox.Session) -> None:
    """Write the file of versions again: what pip resolves today."""
    install(session, "--upgrade")
    listed = session.run("python", "-m", "pip", "freeze", "--exclude-editable", silent=True)
    releases = [line.partition("+")[0] for line in listed.splitlines() if "==" in line]
    # torch asks for its exact CUDA packages itself, where it needs them
    own = ("cuda-", "nvidia-", "triton")
    kept = [
        line for line in releases if line.startswith("nvidia-ml-py") or not line.startswith(own)
    ]
    heading = (
        "# what `nox -s tests` installs: releases that pass; `nox -s versions` writes it again"
    )
    Path(VERSIONS).write_text("\n".join([heading, *kept]) + "\n")


def resolved(session: nox.Session) -> set[str]:
    """The releases of what the package needs that pip would install, each as `name==version`."""
    report = Path(session.create_tmp(), "resolved.json")
    session.run(
        *("python", "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"),
        *("--report", str(report), *NEEDS),
    )
    needed = {re.split("[<>=!~ ]", need)[0].lower() for need in NEEDS}
    found = [each["metadata"] for each in json.loads(report.read_text())["install"]]
    releases = {(each["name"].lower(), each["version"].partition("+")[0]) for each in found}
    return {f"{name}=={version}" for name, version in releases if name in needed}


def install(session: nox.Session, *options: str) -> None:
    """The package, public implementations for tests of parity, and what tests need."""
    session.install(*options, "-e", ".", *groups("test", "oracles"))


def run(session: nox.Session, *options: str) -> None:
    """Tests on all cores, each process of them on one thread."""
    parallel = ("-n", "logical", "--dist", "worksteal")
    session.run("pytest", *parallel, *options, *session.posargs, env={"OMP_NUM_THREADS": "1"})


@nox.session
def fleet(session: nox.Session) -> None:
    """Sweeps on a real Ray, and on a real Slurm if it is installed (about six minutes)."""
    session.install("-e", ".[ray]", *groups("test"))
    session.env["ATTNBENCH_TEST_RAY"] = "required"
    session.run(
        "pytest",
        "-W",
        "default",
        "-m",
        "not faults",
        "tests/commands/sweeping/cluster",
        *session.posargs,
    )


@nox.session
def faults(session: nox.Session) -> None:
    """Long tests of kills, damage, unusual systems and thousands of inputs (about an hour)."""
    install(session, "-c", VERSIONS)
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
    session.install("-c", VERSIONS, "-e", ".", *groups("types"))
    session.run("mypy")


@nox.session
def package(session: nox.Session) -> None:
    """Build wheel and sdist into the given folder, or dist/, check them, and try the sdist."""
    session.install(*groups("package"))
    folder = session.posargs[0] if session.posargs else "dist"
    session.run("python", "-m", "build", "--outdir", folder)
    session.run("twine", "check", "--strict", *map(str, Path(folder).glob("attnbench-*")))
    sdist = max(Path(folder).glob("attnbench-*.tar.gz"), key=lambda file: file.stat().st_mtime)
    # a report needs no torch, which takes long to install
    session.install(*(need for need in NEEDS if not need.startswith("torch")))
    session.install("--no-deps", "--force-reinstall", str(sdist))
    session.run("attnbench", "--version")
    out = session.create_tmp()
    session.run("attnbench", "report", "reports/cpu-decode", "--out", out, silent=True)
    page = Path(out, "report.html").read_text(encoding="utf-8")
    if 'id="vega"' not in page:
        session.error("the page of the installed sdist has no charts")


@nox.session
def speed(session: nox.Session) -> None:
    """Speed against public implementations, on an idle machine (25 minutes)."""
    session.install("-e", ".", *groups("oracles"))
    session.run("python", "-W", "ignore", "-m", "tests.benchmarks.speed", *session.posargs)
