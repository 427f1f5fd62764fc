"""Which packages must be carried to a machine without a network."""

import re
import tomllib
from importlib.metadata import PackageNotFoundError, distribution

from packaging.requirements import Requirement

ITSELF = "# the machine's own: Python 3.12 or later, a driver, torch>=2.11 built with CUDA, Triton"
OWN = "torch"  # with all that it needs
ALWAYS = "# for every step"
TESTS = ("pytest", "pytest-xdist", "hypothesis")  # what tests of a GPU need of all that tests need
COMPARED = "# for comparisons with public implementations; without one, its row says so"


def needed(project, there):
    """Lines of what the machine itself must have, and `NAME==VERSION` of each package to carry.

    `there` names the packages that the machine has, one a line. Versions, and what packages need in
    turn, are those of this environment; what is not installed here is listed as it is required.
    """
    described = tomllib.loads(project.read_text())
    groups = described["dependency-groups"]
    has = {canonical(re.split(r"[=@<>~ ]", line, maxsplit=1)[0]) for line in there.splitlines()}
    has.add(OWN)
    tests = [need for need in groups["test"] if Requirement(need).name in TESTS]
    yield ITSELF
    for title, needs in (
        (ALWAYS, [*described["project"]["dependencies"], *tests]),
        (COMPARED, groups["oracles"]),
    ):
        found = closure(needs, has)
        has |= found.keys()
        yield title
        yield from (found[name] for name in sorted(found))


def closure(needs, has):
    """The requirements and theirs in turn, by name, without those that the machine has."""
    found, waiting = {}, [Requirement(need) for need in needs]
    while waiting:
        need = waiting.pop()
        name = canonical(need.name)
        applies = need.marker is None or need.marker.evaluate({"extra": ""})
        if not applies or name in has or name in found:
            continue
        try:
            installed = distribution(need.name)
        except PackageNotFoundError:
            found[name] = str(need)
            continue
        found[name] = f"{name}=={installed.version}"
        waiting += map(Requirement, installed.requires or ())
    return found


def canonical(name):
    """The name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name.strip()).lower()
