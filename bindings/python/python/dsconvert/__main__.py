"""The `dsconvert` command, which `python -m dsconvert` also runs."""

import signal
import sys

from ._native import run_command


def main() -> int:
    """Runs the command line of this process and returns its exit status."""
    # The command handles SIGINT itself. Python's handler would run only after the command has ended.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return run_command(["dsconvert", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
