"""Kills and errors at file system calls of a process, made by the library of tests/faults: nothing depends on time."""

import os
import random
import subprocess
from collections import Counter
from typing import NamedTuple

import tier
from conftest import ROOT

KINDS = ("open", "write", "fsync", "rename", "unlink", "mkdir", "close")
"""The calls that change files, or that files are opened and closed with."""
ENOSPC = 28


class Fault(NamedTuple):
    """What happens at a call: `nth` counts the calls of a kind in a process, from 1."""

    kind: str
    nth: int
    action: str


class Faults:
    """The compiled library, and runs with it."""

    def __init__(self, folder):
        self._library, self._log = folder / "inject.so", folder / "log"
        command = [os.environ.get("CC", "cc"), "-shared", "-fPIC", "-O1", "-o", self._library]
        subprocess.run([*command, ROOT / "tests/faults/inject.c", "-ldl"], check=True)

    def run(self, command, out, fault=None, env=None):
        """Runs `command`, with a fault at a call on a file below `out`. Returns when all its processes have ended.

        Returns the finished process, whose `calls` are the calls of the run or, with a fault, those that it hit.
        """
        self._log.unlink(missing_ok=True)
        # Python resolves links in the path of a program, and the library compares paths as text.
        variables = {"LD_PRELOAD": self._library, "FAULT_DIRS": out, "FAULT_LOG": self._log}
        if fault is not None:
            variables |= {"FAULT_KIND": fault.kind, "FAULT_NTH": fault.nth, "FAULT_ACTION": fault.action, "FAULT_ERRNO": ENOSPC}
        environment = {**os.environ, **(env or {}), **{name: str(value) for name, value in variables.items()}}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        done.calls = self._log.read_text().splitlines() if self._log.exists() else []
        return done


def some(calls, processes, actions, test):
    """Returns 50 faults of a run with these calls, or a sample of three of all that there are, by the seed of the commit."""
    counts = Counter(call.split(" ", 1)[0] for call in calls)
    # Each process counts its own calls: one of them has made this many.
    all_faults = [
        Fault(kind, nth, action)
        for kind in KINDS
        for nth in range(1, 1 + (counts[kind] + processes - 1) // processes)
        for action in actions
    ]
    count = 50 if tier.is_exhaustive("faults") else 3
    return random.Random(f"{test} {tier.SEED}").sample(all_faults, min(count, len(all_faults)))
