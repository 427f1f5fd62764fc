"""The header of a benchmark's page, what it shows and how it was made; and how often it held."""

import math
from importlib.metadata import PackageNotFoundError, version
from statistics import mean, stdev

from attnbench.devices.finding import find
from attnbench.devices.host import processor

CPU = find("cpu")


def begin(title, doc, command, *packages, device=CPU):
    """Prints the title, the command, this machine, the benchmark's docstring and versions."""
    machine = f"one thread of {processor()}" if device.name == CPU.name else device.title()
    versions = ", ".join(f"{name} {installed(name)}" for name in packages)
    _, _, rest = doc.partition("\n\n")
    described = [part for part in rest.strip("\n").split("\n\n") if not part.startswith("    ")]
    print(f"# {title}\n\nMade by `{command}` on {machine}.\n")
    print("\n\n".join(described), "\n", sep="")
    print(f"Versions: {versions}.\n")


def installed(package):
    """The version of a package, or "not installed"."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def contained(sweeps, truth):
    """How often intervals contain the truth, with a standard error over sweeps of such answers."""
    every = [held for sweep in sweeps for held in sweep]
    shares = [mean(sweep) for sweep in sweeps]
    error = stdev(shares) / len(shares) ** 0.5 if len(shares) > 1 else math.nan
    return (
        f"{sum(every)} of {len(every)} intervals contain {truth}: {mean(every):.1%} ± {error:.1%}"
        f" over {len(sweeps)} sweeps."
    )
