"""The program `attnbench`: signal handlers, then everything else."""

import sys


def main() -> None:
    """Run the command line and leave with its exit code."""
    from attnbench.cli import signals

    signals.leave_on_signal("interrupted; nothing was measured")
    from attnbench.cli.main import run

    code = run()
    signals.ignore_signals()
    sys.exit(code)


if __name__ == "__main__":
    main()
