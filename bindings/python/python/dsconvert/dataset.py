"""Records: what `dsconvert.open` gives."""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, SupportsIndex, overload

import numpy as np
import numpy.typing as npt

from . import _native
from .errors import OutOfRangeError, Place, UsageError

Record = dict[str, Any]
"""A record: names of fields and values. Texts and JSON are `str`, images and other bytes `bytes` (or, decoded, `uint8`
arrays of height × width × channels), token ids `uint16` or `uint32` arrays that view the file and cannot be written,
numbers `int`, `float` and `bool`; what is missing is `None`."""

Transform = Callable[[Record], Any]

DEFAULT_SPLIT = "train"
"""The split that is read when none is named."""


class _Source:
    """A dataset that opens itself again in every process it gets to, by fork or by pickle."""

    def __init__(self, path: str, options: dict[str, Any], fingerprint: str | None = None) -> None:
        self.path = path
        self.options = options
        self._process = 0
        self._native: _native.Dataset
        self.fingerprint = fingerprint or self.native().fingerprint

    def native(self) -> _native.Dataset:
        process = os.getpid()
        if self._process != process:
            native = _native.Dataset(self.path, **self.options)
            known = getattr(self, "fingerprint", native.fingerprint)
            if native.fingerprint != known:
                raise UsageError(
                    f"{self.path}: this is another dataset than the one that was opened here before",
                    place=Place(self.path),
                    remedy="open it again",
                )
            self._native, self._process = native, process
        return self._native

    def __getstate__(self) -> tuple[str, dict[str, Any], str]:
        return self.path, self.options, self.fingerprint

    def __setstate__(self, state: tuple[str, dict[str, Any], str]) -> None:
        self.path, self.options, self.fingerprint = state
        self._process = 0


class Split:
    """The records of one split: a sequence, and a map-style dataset for `torch.utils.data.DataLoader`.

    It may be pickled and used after a fork: in another process it opens the dataset again, by its path.
    """

    def __init__(
        self,
        source: _Source,
        name: str,
        *,
        fields: Sequence[str] | None = None,
        decode: bool = False,
        transform: Transform | None = None,
    ) -> None:
        self._source = source
        self.name = name
        self._fields = None if fields is None else list(fields)
        self._decode = decode
        self.transform = transform
        """Applied to each record."""
        self._process = 0
        self._length = len(self._handle())

    def _handle(self) -> _native.Split:
        if self._process != os.getpid():
            self._split = self._source.native().split(self.name, self._fields, self._decode)
            self._process = os.getpid()
        return self._split

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        del state["_split"]
        state["_process"] = 0
        return state

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: SupportsIndex) -> Any: ...
    @overload
    def __getitem__(self, index: slice | Sequence[SupportsIndex] | npt.NDArray[Any]) -> list[Any]: ...
    def __getitem__(self, index: Any) -> Any:
        """One record by its ordinal, or a list of records by a slice, ordinals, or a mask with one truth per record.

        Negative ordinals count from the end. Many records at once are read faster than one after the other.
        """
        if isinstance(index, slice):
            return self.__getitems__(range(*index.indices(self._length)))
        try:
            ordinal = operator.index(index)
        except TypeError:
            return self.__getitems__(self._ordinals(index))
        return self._finished(self._handle().get(self._ordinal(ordinal)))

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> list[Any]:
        """The records with these ordinals: what `DataLoader` calls for a batch."""
        ordinals = [self._ordinal(operator.index(i)) for i in indices]
        return [self._finished(record) for record in self._handle().get_many(ordinals)]

    def __iter__(self) -> Iterator[Any]:
        """All records in order. One that cannot be read is an error in its place; the next call goes on behind it."""
        return map(self._finished, self._handle().records())

    def _finished(self, record: Record) -> Any:
        return record if self.transform is None else self.transform(record)

    def _ordinal(self, index: int) -> int:
        length = self._length
        if not -length <= index < length:
            raise OutOfRangeError(
                f"record {index}: split {self.name!r} has {length} records", place=Place(row=index)
            )
        return index if index >= 0 else index + length

    def _ordinals(self, index: Any) -> Sequence[int]:
        array = np.asarray(index)
        if array.ndim == 1 and array.dtype == bool:
            if array.size != self._length:
                raise UsageError(f"a mask of {array.size} for {self._length} records")
            array = np.flatnonzero(array)
        if array.ndim != 1 or (array.size and not np.issubdtype(array.dtype, np.integer)):
            raise TypeError(f"records have whole numbers, not {index!r}")
        return array.tolist()  # type: ignore[no-any-return]

    @property
    def dataset(self) -> Dataset:
        """The dataset it is a part of."""
        return Dataset(self._source, decode=self._decode, transform=self.transform, fields=self._fields)

    @property
    def fields(self) -> dict[str, str]:
        """Names and types of the fields of a record."""
        return dict(self._handle().fields)

    @property
    def fingerprint(self) -> str:
        """Names this split of this dataset in saved states."""
        return f"{self._source.fingerprint}/{self.name}"

    def length(self, index: SupportsIndex) -> int:
        """The length of a record in tokens or pixels, from the index."""
        return self._handle().length(self._ordinal(operator.index(index)))

    def lengths(self) -> npt.NDArray[np.uint64]:
        """The lengths of all records in tokens or pixels, from the index."""
        return self._handle().lengths()

    def select(self, fields: Sequence[str]) -> Split:
        """The same split with only these fields. The checksums of its records are not compared."""
        return Split(
            self._source, self.name, fields=fields, decode=self._decode, transform=self.transform
        )

    def with_transform(self, transform: Transform | None) -> Split:
        """The same split with another transform."""
        return Split(
            self._source, self.name, fields=self._fields, decode=self._decode, transform=transform
        )

    def __repr__(self) -> str:
        return f"<dsconvert.Split {self.name!r} of {self._source.path!r}: {self._length} records>"


class Dataset:
    """An opened dataset. `dataset["validation"]` is a split; everything else is asked of the split that is read by
    default, `train` or the only one, so a dataset is itself a map-style dataset."""

    def __init__(
        self,
        source: _Source,
        *,
        fields: Sequence[str] | None = None,
        decode: bool = False,
        transform: Transform | None = None,
    ) -> None:
        self._source = source
        self._fields = fields
        self._decode = decode
        self._transform = transform
        self._default: Split | None = None

    def split(self, name: str) -> Split:
        """The split called `name`."""
        return Split(
            self._source, name, fields=self._fields, decode=self._decode, transform=self._transform
        )

    @property
    def default(self) -> Split:
        """The split that is read when none is named: `train`, or the only one."""
        if self._default is None:
            names = self.splits
            if DEFAULT_SPLIT not in names and len(names) != 1:
                raise UsageError(
                    f"{self.path}: the dataset has no split {DEFAULT_SPLIT!r}",
                    place=Place(self.path),
                    remedy=f"name one of its splits: {', '.join(names)}",
                )
            self._default = self.split(DEFAULT_SPLIT if DEFAULT_SPLIT in names else names[0])
        return self._default

    def __len__(self) -> int:
        return len(self.default)

    def __bool__(self) -> bool:
        return True

    @overload
    def __getitem__(self, index: str) -> Split: ...
    @overload
    def __getitem__(self, index: SupportsIndex) -> Any: ...
    @overload
    def __getitem__(self, index: slice | Sequence[SupportsIndex] | npt.NDArray[Any]) -> list[Any]: ...
    def __getitem__(self, index: Any) -> Any:
        """A split by its name; records of the default split by anything else."""
        return self.split(index) if isinstance(index, str) else self.default[index]

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> list[Any]:
        """Records of the default split: what `DataLoader` calls for a batch."""
        return self.default.__getitems__(indices)

    def __iter__(self) -> Iterator[Any]:
        """All records of the default split in order."""
        return iter(self.default)

    @property
    def path(self) -> str:
        """The directory."""
        return self._source.path

    @property
    def splits(self) -> list[str]:
        """Names of the splits, in order."""
        return self._source.native().splits

    @property
    def kind(self) -> str:
        """`images` or `text`."""
        return self._source.native().kind

    @property
    def format(self) -> str:
        """`parquet`, `arrow`, `msgpack` or `protobuf`."""
        return self._source.native().format

    @property
    def fingerprint(self) -> str:
        """Fingerprint of what the dataset was made from, and how."""
        return self._source.fingerprint

    @property
    def class_names(self) -> list[str]:
        """Names of the classes, in the order of their labels."""
        return self._source.native().class_names

    def describe(self) -> dict[str, Any]:
        """Counts, sizes, lengths and histograms, as `dsconvert inspect --json` shows them."""
        described: dict[str, Any] = json.loads(self._source.native().describe())
        return described

    def _repr_html_(self) -> str:
        """Counts, splits, fields, lengths and, of images, examples: what a notebook shows."""
        return self._source.native().summary_html()

    def __repr__(self) -> str:
        return f"<dsconvert.Dataset {self.path!r}: {self.kind}, {', '.join(self.splits)}>"


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
    read. `verify_checksums` compares each record with its checksum, which takes reading all its fields, and index files
    with theirs before the first length is returned. `open_shards` limits the shards of a split that stay open,
    `read_ahead_bytes` what is read ahead from parquet shards.
    """
    options = {
        "mmap": mmap,
        "verify_checksums": verify_checksums,
        "open_shards": open_shards,
        "read_ahead_bytes": read_ahead_bytes,
    }
    source = _Source(os.path.abspath(os.fspath(path)), options)
    dataset = Dataset(source, fields=fields, decode=decode, transform=transform)
    if decode and dataset.kind != "images":
        raise UsageError("decode does not apply: the dataset holds text", place=Place(source.path))
    if fields is not None:
        for name in dataset.splits[:1]:  # all splits have the same fields
            dataset.split(name)
    return dataset if split is None else dataset.split(split)


def split_of(source: str | os.PathLike[str] | Dataset | Split, split: str | None) -> Split:
    """The split that a sampler or loader is told to read."""
    if isinstance(source, Split):
        if split is not None and split != source.name:
            raise UsageError(f"this is the split {source.name!r}, not {split!r}")
        return source
    dataset = source if isinstance(source, Dataset) else open(source)
    return dataset.default if split is None else dataset.split(split)
