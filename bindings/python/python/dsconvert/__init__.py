"""Datasets of dsconvert in training loops.

* `dsconvert.open(path)` gives records: a sequence, and a map-style dataset for `torch.utils.data.DataLoader`.
* `dsconvert.Loader` gives batches as arrays or tensors, made by threads in this process.
* `dsconvert.BatchSampler` gives the ordinals of batches alone, for those who keep their dataset and `DataLoader`.
* `dsconvert.CacheDataLoader` replays batches: how fast would training be if loading cost nothing?

The reference is `docs/reference/python.md` in the repository.
"""

from .cache import CacheDataLoader
from .dataset import Dataset, Record, Split, open
from .epochs import StepTotals
from .errors import (
    CorruptError,
    Error,
    InternalError,
    IoError,
    NotCommittedError,
    OutOfRangeError,
    Place,
    UnsupportedError,
    UsageError,
)
from .loader import Batch, BatchInfo, Loader
from .sampler import BatchSampler

__all__ = [
    "Batch",
    "BatchInfo",
    "BatchSampler",
    "CacheDataLoader",
    "CorruptError",
    "Dataset",
    "Error",
    "InternalError",
    "IoError",
    "Loader",
    "NotCommittedError",
    "OutOfRangeError",
    "Place",
    "Record",
    "Split",
    "StepTotals",
    "UnsupportedError",
    "UsageError",
    "open",
]
