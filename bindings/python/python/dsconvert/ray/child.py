"""`python -m dsconvert.ray.child PARENT …`: runs a dsconvert command that stops when the process PARENT dies.

Ray kills worker processes without warning. A command that outlived its worker would compete with the retry for the
cores of the machine.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

from .._native import run_command

# From linux/prctl.h.
PR_SET_PDEATHSIG = 1


def stop_with(parent: int) -> None:
    """Makes the kernel send SIGTERM to this process when `parent` dies. Does nothing on systems other than Linux."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    # The parent may have died before the call.
    if os.getppid() != parent:
        sys.exit(128 + signal.SIGTERM)


def main() -> int:
    """Runs the command line after the first argument and returns its exit status."""
    stop_with(int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return run_command(["dsconvert", *sys.argv[2:]])


if __name__ == "__main__":
    sys.exit(main())
