"""The command line as a process: signal handlers, then everything else, then an exit code."""

import sys

from attnbench.commands.stopping import ignore_signals, leave_on_signal


def main() -> None:
    """Run the command line and leave with its exit code."""
    leave_on_signal("interrupted; nothing was measured")
    from attnbench.commands.main import run

    code = run()
    ignore_signals()
    sys.exit(code)
