"""Reads dsconvert datasets in training loops.

* `dsconvert.open(path)` returns records: a sequence, and a map-style dataset for `torch.utils.data.DataLoader`.
* `dsconvert.Loader` returns batches as arrays or tensors, made by threads in this process.
* `dsconvert.BatchSampler` returns only the record ordinals of batches, for use with your own dataset and `DataLoader`.
* `dsconvert.CacheDataLoader` replays batches, to show how fast training would be if loading cost nothing.
* `dsconvert.convert` writes a dataset of the records that a function makes of any items, `dsconvert.Writer` one of those that
  a program writes one after another.
* `dsconvert.bench`, `dsconvert.headspace` and `dsconvert.simulate` measure and predict what loading costs.

The reference is `docs/reference/python.md` in the repository.
"""

from ._native import __version__
from .add_fields import AddedFields, add_fields
from .batch_info import Batch, BatchInfo, batch_info
from .dataset import Dataset, Split, open
from .epochs import SourceShare, StepTotals
from .errors import (
    CorruptError,
    Error,
    InternalError,
    IoError,
    NotCommittedError,
    NotFoundError,
    OutOfRangeError,
    Place,
    UnsupportedError,
    UsageError,
)
from .lab import (
    BenchReport,
    CacheDataLoader,
    HeadspaceProbe,
    HeadspaceReport,
    LoadBreakdown,
    Percentiles,
    Stretch,
    WorkerPrediction,
    bench,
    headspace,
    simulate,
)
from .loader import Loader
from .mixture import Mixture
from .records import ConvertSummary, Reject, Writer, array, convert
from .sampler import BatchSampler
from .source import Record

__all__ = [
    "AddedFields",
    "Batch",
    "BatchInfo",
    "BatchSampler",
    "BenchReport",
    "CacheDataLoader",
    "ConvertSummary",
    "CorruptError",
    "Dataset",
    "Error",
    "HeadspaceProbe",
    "HeadspaceReport",
    "InternalError",
    "IoError",
    "LoadBreakdown",
    "Loader",
    "Mixture",
    "NotCommittedError",
    "NotFoundError",
    "OutOfRangeError",
    "Percentiles",
    "Place",
    "Record",
    "Reject",
    "SourceShare",
    "Split",
    "StepTotals",
    "Stretch",
    "UnsupportedError",
    "UsageError",
    "WorkerPrediction",
    "Writer",
    "__version__",
    "add_fields",
    "array",
    "batch_info",
    "bench",
    "convert",
    "headspace",
    "open",
    "simulate",
]
