"""The command `dsconvert`, also as `python -m dsconvert`."""

import signal
import sys

from ._native import run_command


def main() -> int:
    """Runs the command line of this process and returns its exit status."""
    # The command stops cleanly on its own. Python's handler would run only after the command has ended.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return run_command(["dsconvert", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
