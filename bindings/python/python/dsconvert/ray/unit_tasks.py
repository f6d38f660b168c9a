"""Converts the units of a plan as Ray tasks."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..counts import counted
from ..errors import Error, NotCommittedError, UsageError
from .commands import plan_status, run, unfinished_units
from .nodes import check_this_node, nodes, slots
from .progress import ConversionProgress
from .requirement import import_optional
from .shared_directory import Nonce
from .task_size import TaskSize

logger = logging.getLogger("dsconvert")

# Seconds between progress reports while no task finishes.
REPORT_SECONDS = 1.0
# Seconds between checks of the nodes, which may join and leave.
NODES_SECONDS = 5.0
# Seconds for canceled tasks to stop their commands.
CANCEL_SECONDS = 2.0
# Submitted tasks per task that can run. The next one is then ready when one finishes, but its size is still chosen
# shortly before it starts.
TASKS_PER_SLOT = 2


class UnitJob(NamedTuple):
    """Parameters of all tasks. They are few, because everything about the conversion is in the plan."""

    out: str
    nonce: Nonce
    build: str
    threads: int
    memory: str
    verify: bool
    """Whether finished units are compared with their SHA-256, and converted again if they are damaged."""


class TaskLimits(NamedTuple):
    """Limits for submitting tasks."""

    num_cpus: float
    max_tasks: int | None
    """Maximum number of submitted tasks at a time; `None` is two for each that can run."""
    max_retries: int
    ray_memory: int | None
    """Memory in bytes that Ray reserves for a task."""


class TaskTotals(NamedTuple):
    """Totals of all tasks."""

    converted: int
    tasks: int


def convert_units(job: UnitJob, units: list[int]) -> list[int]:
    """Converts `units` and returns them. Executed by Ray; units that are already finished are left unchanged."""
    check_this_node(job.nonce, job.build)
    limits = ["--threads", str(job.threads), "--memory", job.memory]
    run("run", job.out, "--units", ranges(units), *limits, *(["--verify"] if job.verify else []), "--quiet")
    return units


def ranges(units: Sequence[int]) -> str:
    """Formats ascending units as `3,7-9`."""
    spans: list[list[int]] = []
    for unit in units:
        if spans and spans[-1][1] == unit - 1:
            spans[-1][1] = unit
        else:
            spans.append([unit, unit])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


def unfinished(out: str, units: Sequence[int]) -> list[int]:
    """Returns those of `units` that are not finished; all, if that is not known."""
    try:
        return sorted(set(units).intersection(unfinished_units(plan_status(out))))
    except Error:
        return list(units)


class UnitTasks:
    """Submits the tasks of a conversion and waits for them. Ray handles placement, queues and retries."""

    def __init__(
        self,
        job: UnitJob,
        units: Sequence[int],
        size: TaskSize,
        limits: TaskLimits,
        unit_bytes: float,
        progress: Callable[[ConversionProgress], None] | None,
    ) -> None:
        self._ray = import_optional("ray")
        self._job = job
        self._units = list(units)
        self._next = 0
        self._size = size
        self._limits = limits
        self._unit_bytes = unit_bytes
        self._progress = progress
        self._running: dict[Any, list[int]] = {}
        self._done = 0
        self._tasks = 0
        self._failed: list[int] = []
        self._first_failure: str | None = None
        self._slots_known = 0
        self._slots_until = 0.0
        options: dict[str, Any] = {
            "num_cpus": limits.num_cpus,
            "max_retries": limits.max_retries,
            # A source that cannot be read may be readable in another attempt, on another node.
            "retry_exceptions": [NotCommittedError],
        }
        if limits.ray_memory is not None:
            options["memory"] = limits.ray_memory
        self._remote = self._ray.remote(**options)(convert_units)

    def run(self) -> TaskTotals:
        """Converts all units.

        Raises `NotCommittedError` if units have failed, after all others are finished.
        """
        self._started = time.monotonic()
        try:
            while self._next < len(self._units) or self._running:
                self._submit()
                self._wait()
                self._report()
        except BaseException:
            self._cancel()
            raise
        if self._failed:
            raise self._failure()
        return TaskTotals(self._done, self._tasks)

    def _slots(self) -> int:
        """Returns the number of tasks that the cluster can execute at the same time; at least one, so that an
        autoscaler starts a node."""
        now = time.monotonic()
        if now >= self._slots_until:
            self._slots_known = slots(nodes(), self._limits.num_cpus)
            self._slots_until = now + NODES_SECONDS
            if not self._slots_known:
                logger.warning(
                    "no node of the Ray cluster has %s CPUs: the tasks wait until one joins", self._limits.num_cpus
                )
        return max(self._slots_known, 1)

    def _submit(self) -> None:
        free = self._slots()
        most = self._limits.max_tasks or TASKS_PER_SLOT * free
        while self._next < len(self._units) and len(self._running) < most:
            count = self._size.units(len(self._units) - self._next, free)
            units = self._units[self._next : self._next + count]
            self._running[self._remote.remote(self._job, units)] = units
            self._next += count
            self._tasks += 1

    def _wait(self) -> None:
        done, _ = self._ray.wait(list(self._running), num_returns=1, timeout=REPORT_SECONDS)
        for task in done:
            units = self._running.pop(task)
            try:
                self._ray.get(task)
            except self._ray.exceptions.RayError as error:
                self._note_failure(units, error)
            else:
                self._done += len(units)
                self._size.finished(len(units), time.monotonic(), self._slots())

    def _note_failure(self, units: list[int], error: Exception) -> None:
        cause = getattr(error, "cause", None)
        if isinstance(cause, UsageError):
            # The node cannot convert, or the request is invalid: other tasks would fail in the same way.
            raise cause from None
        # The command of a task converts its other units even if one fails.
        failed = unfinished(self._job.out, units) or units
        self._failed += failed
        self._done += len(units) - len(failed)
        if self._first_failure is None:
            self._first_failure = cause.message if isinstance(cause, Error) else str(error).strip()

    def _failure(self) -> NotCommittedError:
        units = counted(len(self._units), "unit")
        retries = counted(self._limits.max_retries, "retry", "retries")
        return NotCommittedError(
            f"{len(self._failed)} of {units} failed after {retries}: {ranges(sorted(self._failed))}; "
            f"the first failure: {self._first_failure}",
            remedy="the finished units are kept: fix the cause, then convert again with the same options and resume",
        )

    def _report(self) -> None:
        if self._progress is not None:
            self._progress(
                ConversionProgress(
                    units=len(self._units),
                    done=self._done,
                    failed=len(self._failed),
                    tasks=len(self._running),
                    seconds=time.monotonic() - self._started,
                    source_bytes=int(self._done * self._unit_bytes),
                )
            )

    def _cancel(self) -> None:
        """Stops all tasks, including those that Ray would retry. Their finished units are kept."""
        tasks = list(self._running)
        if not tasks:
            return
        for task in tasks:
            # Without `force`: with Ray 2.60, the driver exited when the result of such a task arrived late. A task that
            # does not stop ends when the driver disconnects, and its command ends with its worker.
            self._ray.cancel(task)
        self._ray.wait(tasks, num_returns=len(tasks), timeout=CANCEL_SECONDS, fetch_local=False)
