"""The header of a benchmark's page: what it shows, and how it was made."""

from importlib.metadata import PackageNotFoundError, version

from attnbench.measure.environment import processor


def begin(title, doc, command, *packages):
    """Prints the title, the command, the machine, the benchmark's docstring and versions."""
    _, _, rest = doc.partition("\n\n")
    described = [part for part in rest.strip("\n").split("\n\n") if not part.startswith("    ")]
    print(f"# {title}\n\nMade by `{command}` on one thread of {processor()}.\n")
    print("\n\n".join(described), "\n", sep="")
    print("Versions:", ", ".join(f"{name} {installed(name)}" for name in packages), end=".\n\n")


def installed(package):
    """The version of a package, or "not installed"."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
