"""The loader lab: measures what loading costs a training loop, and predicts what would change it.

* `bench` measures how fast a loader delivers batches.
* `headspace` measures a training loop, and estimates how much faster it would be if loading cost nothing.
* `simulate` predicts how long a model waits for its batches, for a number of workers.
* `CacheDataLoader` replays batches, to show how fast training would be if loading cost nothing.

All names are also those of `dsconvert`. `lab/README.md` in the repository shows how the parts belong together.
"""

from .bench_report import BenchReport, LoadBreakdown, Percentiles
from .benchmark import bench
from .cache import CacheDataLoader
from .headspace_probe import HeadspaceProbe, headspace
from .headspace_report import HeadspaceReport, Stretch
from .simulation import simulate
from .worker_prediction import WorkerPrediction

__all__ = [
    "BenchReport",
    "CacheDataLoader",
    "HeadspaceProbe",
    "HeadspaceReport",
    "LoadBreakdown",
    "Percentiles",
    "Stretch",
    "WorkerPrediction",
    "bench",
    "headspace",
    "simulate",
]
