"""Chooses the number of units per task, so that a task takes about `seconds`."""

from __future__ import annotations

import math
from dataclasses import dataclass

# Source bytes per second and core that are assumed until tasks have finished. Most machines are faster, so the first
# tasks are short, and measured rates soon replace the assumption.
FIRST_RATE = {"images": 30e6, "text": 60e6}
# Share of `seconds` that the first tasks should take.
FIRST_SHARE = 0.5


@dataclass
class TaskSize:
    """Sizes tasks by the measured rate of the whole cluster."""

    seconds: float
    """Time that a task should take."""
    unit_seconds: float
    """Time that a unit takes in a task; assumed until it is measured."""
    _first_done: float | None = None
    _units_since: int = 0
    _tasks_done: int = 0

    @classmethod
    def assumed(cls, kind: str, seconds: float, unit_bytes: float, num_cpus: float) -> TaskSize:
        """Returns the size to use before anything is measured."""
        return cls(seconds, unit_bytes / (FIRST_RATE[kind] * num_cpus) / FIRST_SHARE)

    def finished(self, units: int, now: float, slots: int) -> None:
        """Records that a task with `units` units finished at `now`, while the cluster executed `slots` tasks at a time.

        The rate is measured from the first finished task on, so that starting worker processes does not count. It is
        used once each slot has finished a task, because it is too low before.
        """
        self._tasks_done += 1
        if self._first_done is None:
            self._first_done = now
            return
        self._units_since += units
        elapsed = now - self._first_done
        if self._tasks_done > slots and elapsed > 0:
            self.unit_seconds = elapsed * max(slots, 1) / self._units_since

    def units(self, remaining: int, slots: int) -> int:
        """Returns the number of units of the next task.

        It is at most half of an equal share of the rest, so that all slots finish at about the same time.
        """
        # Limited before it becomes an integer, which an infinite number of units cannot.
        by_time = int(min(remaining, self.seconds / self.unit_seconds)) if self.unit_seconds > 0 else remaining
        share = math.ceil(remaining / (2 * max(slots, 1)))
        return max(1, min(by_time, share))
