"""Runs commands of dsconvert in child processes and turns their errors into exceptions.

A child process can be stopped at any time, and a crash of native code ends only the child, not the Ray worker.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import Error, NotCommittedError, UsageError

EXIT_REJECTS = 1
EXIT_USAGE = 2
# Seconds between checks of the child. A task is canceled at one of these checks: Ray raises KeyboardInterrupt in the
# main thread, which must be executing Python.
POLL_SECONDS = 0.2
# Seconds that a terminated command gets to exit before it is killed; it needs less than two.
STOP_SECONDS = 10.0


class CommandOutput(NamedTuple):
    """Output of a command that succeeded."""

    output: str
    """Standard output."""
    messages: str
    """Standard error: warnings."""


def run(*arguments: str | os.PathLike[str]) -> CommandOutput:
    """Runs `dsconvert` with `arguments`.

    Raises `UsageError` for exit status 2, and `NotCommittedError` for every other failure. When the wait is interrupted,
    the command is stopped first.
    """
    command = [sys.executable, "-P", "-m", "dsconvert.ray.child", str(os.getpid())]
    command += [os.fspath(argument) for argument in arguments]
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="backslashreplace",
        env=_environment(),
    )
    try:
        output, errors = _communicate(child)
    except BaseException:
        _stop(child)
        raise
    if child.returncode in (0, EXIT_REJECTS):
        return CommandOutput(output, errors)
    raise _error(arguments, child.returncode, errors)


def plan_status(out: str | os.PathLike[str]) -> dict[str, Any]:
    """Returns the status of the plan in `out`, as `dsconvert status --json` prints it."""
    status: dict[str, Any] = json.loads(run("status", out, "--json").output)
    return status


def unfinished_units(status: dict[str, Any]) -> list[int]:
    """Returns the units of a plan that remain to be converted, in ascending order."""
    return sorted(status["started"] + status["missing"])


def _environment() -> dict[str, str]:
    """Returns the environment in which a child imports the same package as this process."""
    here = str(Path(__file__).parents[2])
    rest = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{here}{os.pathsep}{rest}" if rest else here}


def _communicate(child: subprocess.Popen[str]) -> tuple[str, str]:
    while True:
        try:
            return child.communicate(timeout=POLL_SECONDS)
        except subprocess.TimeoutExpired:
            pass


def _stop(child: subprocess.Popen[str]) -> None:
    # Not SIGINT, because Ray blocks it in the processes it starts.
    child.terminate()
    try:
        child.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _error(arguments: Sequence[str | os.PathLike[str]], status: int, errors: str) -> Error:
    message, remedy = _last_message(errors)
    if message is None:
        ended = f"was killed by signal {-status}" if status < 0 else f"ended with exit status {status}"
        message = f"dsconvert {os.fspath(arguments[0])} {ended}"
    kind = UsageError if status == EXIT_USAGE else NotCommittedError
    return kind(message, remedy=remedy)


def _last_message(errors: str) -> tuple[str | None, str | None]:
    """Returns the last `error: message` of standard error, and the help after its label `tip:`.

    Both may continue on indented lines, such as a list of rejected items or of missing options.
    """
    message: list[str] = []
    remedy: list[str] = []
    is_inside = False
    for line in errors.splitlines():
        start, colon, text = line.partition(": ")
        if colon and start == "error":
            message, remedy, is_inside = [text], [], True
        elif line and not line.startswith("  "):  # the usage, or a line of another message
            is_inside = False
        elif line and is_inside:
            help = line.strip().removeprefix("tip: ")
            if remedy or help != line.strip():
                remedy.append(help)
            else:
                message.append(line)
    return "\n".join(message) or None, "\n".join(remedy) or None
