"""What the command `attnbench` runs, wherever Python finds the package.

It is installed beside the package, as the module `attnbench_program`: where PYTHONPATH leads to
something else of the package's name, no file of the package itself would be found to say so.
"""

import importlib.util
import os
import sys

OWN = os.path.join("commands", "entry.py")  # a file that this package has


def main() -> None:
    """Run the command line and leave with its exit code: 2 if something else has its name."""
    spec = importlib.util.find_spec("attnbench")
    folders = list(spec.submodule_search_locations or []) if spec else []
    if not any(os.path.isfile(os.path.join(folder, OWN)) for folder in folders):
        place = next(iter(folders), spec.origin if spec else None)
        sys.exit(refusal(place))
    from attnbench.commands.entry import main

    main()


def refusal(place: str | None) -> int:
    """Say that the package is not where Python looks for it; return the exit code."""
    if place is None:
        message = "Python does not find the package attnbench; install it again"
    else:
        message = (
            f"Python finds another 'attnbench' before this one, {place!r}; rename it, or leave its"
            " folder out of PYTHONPATH"
        )
    print(f"attnbench: {message}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    main()
