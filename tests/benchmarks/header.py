"""The header of a benchmark's page: what it shows, and how it was made."""

from importlib.metadata import PackageNotFoundError, version

from attnbench.device import find
from attnbench.measure.environment import processor

CPU = find("cpu")


def begin(title, doc, command, *packages, device=CPU):
    """Prints the title, the command, the machine, the benchmark's docstring and versions."""
    _, _, rest = doc.partition("\n\n")
    described = [part for part in rest.strip("\n").split("\n\n") if not part.startswith("    ")]
    machine = f"one thread of {processor()}" if device.name == CPU.name else device.title()
    print(f"# {title}\n\nMade by `{command}` on {machine}.\n")
    print("\n\n".join(described), "\n", sep="")
    print("Versions:", ", ".join(f"{name} {installed(name)}" for name in packages), end=".\n\n")


def installed(package):
    """The version of a package, or "not installed"."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
