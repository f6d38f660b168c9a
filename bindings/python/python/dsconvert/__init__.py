"""Datasets of dsconvert in training loops.

* `dsconvert.open(path)` gives records: a sequence, and a map-style dataset for `torch.utils.data.DataLoader`.
* `dsconvert.Loader` gives batches as arrays or tensors, made by threads in this process.
* `dsconvert.BatchSampler` gives the ordinals of batches alone, for those who keep their dataset and `DataLoader`.
* `dsconvert.CacheDataLoader` replays batches: how fast would training be if loading cost nothing?

`docs/python.md` in the repository tells more.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import overload

from .cache import CacheDataLoader
from .dataset import Dataset, Record, Split, Transform, open_dataset
from .epochs import StepTotals
from .errors import (
    CorruptError,
    Error,
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


@overload
def open(
    path: str | os.PathLike[str],
    split: None = None,
    *,
    fields: Sequence[str] | None = ...,
    decode: bool = ...,
    transform: Transform | None = ...,
    mmap: bool = ...,
    verify_checksums: bool = ...,
    open_shards: int | None = ...,
    read_ahead_bytes: int | None = ...,
) -> Dataset: ...
@overload
def open(
    path: str | os.PathLike[str],
    split: str,
    *,
    fields: Sequence[str] | None = ...,
    decode: bool = ...,
    transform: Transform | None = ...,
    mmap: bool = ...,
    verify_checksums: bool = ...,
    open_shards: int | None = ...,
    read_ahead_bytes: int | None = ...,
) -> Split: ...
def open(
    path: str | os.PathLike[str],
    split: str | None = None,
    *,
    fields: Sequence[str] | None = None,
    decode: bool = False,
    transform: Transform | None = None,
    mmap: bool = True,
    verify_checksums: bool = True,
    open_shards: int | None = None,
    read_ahead_bytes: int | None = None,
) -> Dataset | Split:
    """Opens the dataset in the directory `path`, or one split of it.

    `fields` are the fields that records have (all). With `decode`, images are arrays instead of bytes. `transform` is
    applied to each record. `mmap=False` reads files instead of mapping them, for those that may change while they are
    read. `verify_checksums` compares each record with its checksum. `open_shards` limits the shards of a split that
    stay open, `read_ahead_bytes` what is read ahead from parquet shards.
    """
    dataset = open_dataset(
        path,
        fields=fields,
        decode=decode,
        transform=transform,
        mmap=mmap,
        verify_checksums=verify_checksums,
        open_shards=open_shards,
        read_ahead_bytes=read_ahead_bytes,
    )
    return dataset if split is None else dataset.split(split)
