"""How a benchmark's page begins: what it is, and with what it was made."""

from importlib.metadata import PackageNotFoundError, version

from attnbench.measure.environment import processor


def begin(title, doc, command, *packages):
    """Print the title, the benchmark's own description, the command, machine and versions."""
    _, _, rest = doc.partition("\n\n")
    described = [part for part in rest.strip("\n").split("\n\n") if not part.startswith("    ")]
    print(f"# {title}\n\nMade by `{command}` on one thread of {processor()}.\n")
    print("\n\n".join(described), "\n", sep="")
    print("Versions:", ", ".join(f"{name} {found(name)}" for name in packages), end=".\n\n")


def found(package):
    """The version of a package, or that there is none."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
