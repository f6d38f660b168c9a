"""Simulates a conversion on many machines, some of which are slow or fail.

    python tools/scale_simulation.py            # prints the tables of docs/explanation/scale.md
    python tools/scale_simulation.py --write    # updates the tables in the page

The model has work units, tasks and machines; no bytes are converted. Rates are those measured on one core
(docs/explanation/performance.md), times the cores of a machine. Tasks are sized by the code of `dsconvert.ray`. Random
numbers come from fixed seeds, so that the tables are the same everywhere; `tests/python/test_scale_page.py` compares
them with the page.
"""

import argparse
import heapq
import importlib.util
import math
import random
import re
import statistics
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/explanation/scale.md"

CORES = 32
SEEDS = range(5)
# Standard deviation of the logarithm of the speeds of machines.
SPEED_SIGMA = 0.05
# Stragglers: a share of the machines has a quarter of the speed.
STRAGGLER_SHARE = 0.01
STRAGGLER_SPEED = 0.25
# Mean time between failures of a machine, as for machines that may be reclaimed at any time, and the time until it or a
# spare works again.
MTBF_HOURS = 10.0
REPAIR_SECONDS = 300.0
# Start of a task: process, package, plan.
TASK_START_SECONDS = 1.0


def task_size_class():
    """Returns `TaskSize` of the package without importing the package, which needs its native module."""
    path = ROOT / "bindings/python/python/dsconvert/ray/task_size.py"
    spec = importlib.util.spec_from_file_location("task_size", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.TaskSize


TaskSize = task_size_class()


@dataclass(frozen=True)
class Job:
    """The data to convert."""

    name: str
    kind: str
    source_bytes: float
    unit_bytes: float
    core_rate: float
    """Source bytes per second and core."""

    @property
    def units(self):
        return math.ceil(self.source_bytes / self.unit_bytes)

    @property
    def unit_seconds(self):
        """Time of a unit on a machine of mean speed."""
        return self.unit_bytes / (self.core_rate * CORES)


# 541 photographs of 108 kB per second, and 127 MB of text per second, with one thread and parquet.
IMAGES = Job("1 PB of JPEGs", "images", 1e15, 2 << 30, 541 * 108e3)
TEXT = Job("10 TB of text", "text", 1e13, 256 << 20, 127e6)


@dataclass
class Machine:
    speed: float
    failures: list = field(default_factory=list)
    """Times of the failures drawn so far, ascending."""


class Cluster:
    """Machines whose speed and failures depend on the seed only, not on what they execute."""

    def __init__(self, count, seed, *, stragglers, failures):
        self._random = random.Random(seed)
        slow = int(count * STRAGGLER_SHARE) if stragglers else 0
        self.machines = [
            Machine(math.exp(self._random.gauss(0, SPEED_SIGMA)) * (STRAGGLER_SPEED if i < slow else 1.0))
            for i in range(count)
        ]
        self._clocks = [random.Random(self._random.random()) for _ in range(count)] if failures else None

    def next_failure(self, machine, after):
        """Returns the time of the first failure of a machine after the time `after`."""
        if self._clocks is None:
            return math.inf
        times = self.machines[machine].failures
        while not times or times[-1] <= after:
            last = times[-1] if times else 0.0
            times.append(last + self._clocks[machine].expovariate(1 / (MTBF_HOURS * 3600)))
        return next(time for time in times if time > after)


@dataclass(frozen=True)
class Outcome:
    seconds: float
    tasks: int
    failures: int
    """Tasks that a failure of their machine ended."""
    ideal_seconds: float
    """Time of the same work without failures, task starts and idle machines, at the total speed of these machines."""

    @property
    def share_of_ideal(self):
        return self.ideal_seconds / self.seconds


class MeasuredTasks:
    """Tasks as `dsconvert.ray` submits them."""

    def __init__(self, job, machines):
        self._machines = machines
        self._size = TaskSize.assumed(job.kind, 45.0, job.unit_bytes, CORES)

    def units(self, remaining):
        return self._size.units(remaining, self._machines)

    def finished(self, units, now):
        self._size.finished(units, now, self._machines)


class Parts:
    """Parts of equal size, as in a Slurm array, with `each` parts per machine."""

    def __init__(self, job, machines, each):
        self._units = math.ceil(job.units / (machines * each))

    def units(self, remaining):
        return min(self._units, remaining)

    def finished(self, units, now):
        pass


def simulate(job, cluster, tasks):
    """Assigns tasks to idle machines. A failed task is retried with the units that it had not finished."""
    remaining, again = job.units, []
    idle = list(range(len(cluster.machines)))
    events = []  # (time, machine, units, units left); units are 0 when a machine is repaired
    now = last = 0.0
    started = failures = working = 0
    while True:
        while idle and (again or remaining):
            machine = idle.pop()
            if again:
                units = again.pop()
            else:
                units = tasks.units(remaining)
                remaining -= units
            end, left = execute(cluster, machine, now, units, job.unit_seconds)
            heapq.heappush(events, (end, machine, units, left))
            started += 1
            working += 1
        if not (working or again or remaining):
            speed = sum(machine.speed for machine in cluster.machines)
            return Outcome(last, started, failures, job.units * job.unit_seconds / speed)
        now, machine, units, left = heapq.heappop(events)
        if not units:
            idle.append(machine)
            continue
        working -= 1
        if left:
            failures += 1
            again.append(left)
            heapq.heappush(events, (now + REPAIR_SECONDS, machine, 0, 0))
        else:
            last = now
            tasks.finished(units, now)
            idle.append(machine)


def execute(cluster, machine, start, units, unit_seconds):
    """Returns when a task ends, and how many of its units are left if its machine fails. Finished units are kept."""
    per_unit = unit_seconds / cluster.machines[machine].speed
    end = start + TASK_START_SECONDS + units * per_unit
    failure = cluster.next_failure(machine, start)
    if failure >= end:
        return end, 0
    finished = max(0, int((failure - start - TASK_START_SECONDS) / per_unit))
    return failure, units - finished


def outcomes(job, machines, make_tasks, **faults):
    """Returns the outcomes for all seeds."""
    return [simulate(job, Cluster(machines, seed, **faults), make_tasks(job, machines)) for seed in SEEDS]


def duration(seconds):
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def sizes_table():
    """Returns the table of how long 1 to 1,000 machines take, and how fast they read."""
    lines = [
        "| job | machines | without faults | with faults | share of ideal | failed tasks | total read rate |",
        "|---|---|---|---|---|---|---|",
    ]
    for job in (IMAGES, TEXT):
        for machines in (1, 10, 100, 1000):
            clean = median(outcomes(job, machines, MeasuredTasks, stragglers=False, failures=False), "seconds")
            faulty = outcomes(job, machines, MeasuredTasks, stragglers=True, failures=True)
            seconds = median(faulty, "seconds")
            lines.append(
                f"| {job.name} | {machines:,} | {duration(clean)} | {duration(seconds)} | {median(faulty, 'share_of_ideal'):.0%} | "
                f"{median(faulty, 'failures'):.0f} | {job.source_bytes / seconds / 1e9:,.1f} GB/s |"
            )
    return lines


def division_table():
    """Returns the table of ways to divide the work, on 1,000 machines with stragglers and failures."""
    ways = {
        "one part for each machine": lambda job, machines: Parts(job, machines, 1),
        "5 parts for each machine": lambda job, machines: Parts(job, machines, 5),
        "25 parts for each machine": lambda job, machines: Parts(job, machines, 25),
        "tasks of 45 s, sized by the measured rate": MeasuredTasks,
    }
    lines = ["| division | 1 PB of JPEGs | share of ideal | tasks |", "|---|---|---|---|"]
    for name, make_tasks in ways.items():
        found = outcomes(IMAGES, 1000, make_tasks, stragglers=True, failures=True)
        seconds = median(found, "seconds")
        lines.append(f"| {name} | {duration(seconds)} | {median(found, 'share_of_ideal'):.0%} | {median(found, 'tasks'):,.0f} |")
    return lines


def median(found, name):
    return statistics.median(getattr(outcome, name) for outcome in found)


def tables():
    """Returns the tables of the page by name."""
    return {"sizes": sizes_table(), "division": division_table()}


def replaced(page, made):
    """Returns the page with its tables replaced."""
    for name, lines in made.items():
        block = f"<!-- simulated: {name} -->\n\n" + "\n".join(lines) + "\n"
        page, count = re.subn(rf"<!-- simulated: {name} -->\n\n(?:\|.*\n)*", lambda _: block, page)
        assert count == 1, f"the page must have one table {name}, not {count}"
    return page


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--write", action="store_true", help="write the tables into docs/explanation/scale.md")
    made = tables()
    if arguments.parse_args().write:
        PAGE.write_text(replaced(PAGE.read_text(), made))
    else:
        print("\n\n".join("\n".join(lines) for lines in made.values()))


if __name__ == "__main__":
    main()
