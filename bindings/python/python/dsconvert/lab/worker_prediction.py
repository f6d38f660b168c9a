"""Predicts step times with other numbers of workers, by simulation."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any

from .batch_loads import is_data_loader
from .benchmark import load_times
from ..loader import Loader
from .simulation import simulate

MAX_LOADED_BATCHES = 24
"""Maximum number of batches that are loaded for a prediction."""
MAX_LOADING_SECONDS = 10.0
"""Maximum time spent on loading them."""
SIMULATED_BATCHES = 400
"""Number of batches in a simulation."""
CPU_BOUND_SHARE = 0.5
"""Share of CPU time from which loading counts as bound by the CPU: workers then compete for cores."""


@dataclass(frozen=True)
class WorkerPrediction:
    """Predicted step time with a number of workers (for a `Loader`: threads)."""

    workers: int
    step_ms: float
    """Mean time of a step, loading included."""


def current_workers(loader: Any) -> int | None:
    """Returns the number of workers (for a `Loader`: threads) of `loader`, or None if it is of another type."""
    if is_data_loader(loader):
        return int(loader.num_workers)
    return int(loader._options["num_threads"]) if isinstance(loader, Loader) else None


def predict_workers(loader: Any, step_ms: float) -> list[WorkerPrediction]:
    """Predicts step times with 1, 2, 4, … workers and with those of `loader`, if a step without loading takes
    `step_ms`.

    The result is empty for loaders other than `DataLoader` and `Loader`, whose load times cannot be measured.
    """
    current = current_workers(loader)
    if current is None:
        return []
    prefetch, in_order = 2, True
    if is_data_loader(loader):
        # A DataLoader without workers has no prefetch factor; 2 is the default.
        prefetch = int(loader.prefetch_factor or 2)
        in_order = getattr(loader, "in_order", True)
    times, cpu_share = load_times(loader, MAX_LOADED_BATCHES, MAX_LOADING_SECONDS)
    if not times:
        return []
    trace = [max(1e-6, seconds * 1e3) for seconds in times]
    load_ms = sum(trace) / len(trace)
    step_ms = max(step_ms, 1e-3)
    enough = math.ceil(load_ms / step_ms)
    counts = {2**i for i in range(0, 7) if 2**i <= 2 * max(enough, current, 2)} | {current, min(enough, 1024)} - {0}
    cores = cores_of(cpu_share)

    def predicted(workers: int) -> WorkerPrediction:
        done = simulate(
            load_trace=trace,
            step_ms=step_ms,
            workers=workers,
            prefetch=prefetch,
            order="pytorch" if in_order else "completed",
            cores=cores if cores is not None and cores < workers else None,
            batches=SIMULATED_BATCHES,
        )
        # Without the wait for the first batch.
        stepping_ms = float(done["seconds"]) * 1e3 - float(done["first_batch_ms"])
        return WorkerPrediction(workers, stepping_ms / int(done["batches"]))

    return [predicted(workers) for workers in sorted(counts) if 0 < workers <= 1024]


def cores_of(cpu_share: float) -> int | None:
    """Returns how many batches the cores of this process can load at the same time, or None if loading is not bound by
    the CPU."""
    if cpu_share < CPU_BOUND_SHARE:
        return None
    # Rounded: the share of a load that uses one core is often measured as slightly more than 1.
    return max(1, round(len(os.sched_getaffinity(0)) / cpu_share))
