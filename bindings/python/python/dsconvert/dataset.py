"""Datasets and splits, as returned by `dsconvert.open`."""

from __future__ import annotations

import json
import operator
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias, TypedDict, Unpack, overload

import numpy as np
import numpy.typing as npt

from . import _native
from .arguments import integer
from .counts import counted
from .errors import OutOfRangeError, Place, UsageError
from .keywords import tips_for_keywords
from .notebook import table
from .source import DatasetProperties, Record, Source, Transform

if TYPE_CHECKING:
    # For type checkers, splits are torch datasets, so that `DataLoader(split)` is well-typed. At run time, torch needs
    # only their methods, and importing this package does not import torch.
    from torch.utils.data import ConcatDataset
    from torch.utils.data import Dataset as TorchDataset

    MapDataset = TorchDataset[Any]
else:
    MapDataset = object

Paths: TypeAlias = list[Any] | tuple[Any, ...]
"""Paths of several datasets. Not a `Sequence`, because a `str` is one."""
DEFAULT_SPLIT = "train"
"""The split that is read by default."""
MAX_SPLITS_SHOWN = 8
"""Maximum number of splits that the repr of a dataset lists."""


class Split(DatasetProperties, MapDataset):
    """The records of one split: a sequence, and a map-style dataset for `torch.utils.data.DataLoader`.

    `dsconvert.open(path, "train")` and `dataset["train"]` return one. It can be pickled and used after a fork: in
    another process, it reopens the dataset by its path. It has the methods and properties of a `Dataset`, except
    `splits`, `split` and `default`.
    """

    def __init__(
        self,
        source: Source,
        name: str,
        *,
        fields: Sequence[str] | None = None,
        decode: bool = False,
        transform: Transform | None = None,
        measured_by: str | None = None,
    ) -> None:
        self._source = source
        self.name = name
        self._fields = _names(fields)
        self._decode = decode
        self._measured_by = measured_by
        self.transform = transform
        """Function that is applied to each record."""
        self._process = 0
        self._length = len(self._handle())

    def _handle(self) -> _native.Split:
        if self._process != os.getpid():
            self._split = self._open()
            self._process = os.getpid()
        return self._split

    def _open(self) -> _native.Split:
        split = self._source.native().split(self.name, self._fields, self._decode)
        return split if self._measured_by is None else split.with_length(self._measured_by)

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        state.pop("_split", None)  # not opened yet in an unpickled split
        state["_process"] = 0
        return state

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: SupportsIndex) -> Any: ...
    @overload
    def __getitem__(self, index: slice | Sequence[SupportsIndex] | npt.NDArray[Any]) -> list[Any]: ...
    def __getitem__(self, index: Any) -> Any:
        """Returns one record by ordinal, or a list of records by slice, ordinals, or a mask with one boolean per
        record.

        Negative ordinals count from the end. Reading many records at once is faster than reading them one by one.
        """
        if isinstance(index, slice):
            return self.__getitems__(range(*index.indices(self._length)))
        try:
            # An array or tensor of one number is a list of ordinals, although `operator.index` may accept it.
            ordinal = operator.index(index) if getattr(index, "ndim", 0) == 0 else None
        except TypeError:
            ordinal = None
        if ordinal is None:
            return self.__getitems__(self._ordinals(index))
        return self._transformed(self._handle().get(self._ordinal(ordinal)))

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> list[Any]:
        """Returns the records with these ordinals. `DataLoader` calls this for a batch."""
        ordinals = [self._ordinal(operator.index(i)) for i in indices]
        return [self._transformed(record) for record in self._handle().get_many(ordinals)]

    def __iter__(self) -> Iterator[Any]:
        """Iterates over all records in order. An unreadable one raises an error; the next call continues after it."""
        return map(self._transformed, self._handle().records())

    def _transformed(self, record: Record) -> Any:
        if self.transform is None:
            return record
        try:
            return self.transform(record)
        except StopIteration as error:
            # It would silently end an iteration over the records.
            raise RuntimeError("the transform of the dataset raised StopIteration") from error

    def _ordinal(self, index: int) -> int:
        length = self._length
        if not -length <= index < length:
            raise OutOfRangeError(
                f"record {index}: split {self.name!r} has {counted(length, 'record')}", place=Place(row=index)
            )
        return index if index >= 0 else index + length

    def _ordinals(self, index: Any) -> Sequence[int]:
        array = np.asarray(index)
        if array.ndim == 1 and array.dtype in (np.float64, object) and isinstance(index, (list, tuple)):
            try:
                # numpy makes floats and objects of integers of which some need more than 64 bits.
                return [operator.index(ordinal) for ordinal in index]
            except TypeError:
                pass
        if array.ndim == 1 and array.dtype == bool:
            if array.size != self._length:
                raise UsageError(
                    f"the mask has a length of {array.size}, but the split has {counted(self._length, 'record')}"
                )
            array = np.flatnonzero(array)
        if array.ndim != 1 or (array.size and not np.issubdtype(array.dtype, np.integer)):
            raise TypeError(f"record ordinals are integers, not {index!r}")
        return array.tolist()  # type: ignore[no-any-return]

    def __add__(self, other: Any) -> ConcatDataset[Any]:
        """Concatenates both as a `torch.utils.data.ConcatDataset`."""
        from torch.utils.data import ConcatDataset

        return ConcatDataset([self, other])

    def _stored(self, fields: Sequence[str] | None, decode: bool) -> Split:
        """Returns the same records as they are stored, with these fields, or those of this split if None."""
        fields = self._fields if fields is None else fields
        return Split(self._source, self.name, fields=fields, decode=decode, measured_by=self._measured_by)

    @property
    def dataset(self) -> Dataset:
        """The dataset that this split belongs to."""
        return Dataset(self._source, decode=self._decode, transform=self.transform, fields=self._fields)

    @property
    def fields(self) -> dict[str, str]:
        """Names and types of the fields of a record."""
        return dict(self._handle().fields)

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the dataset and name of the split, which identify this split in saved states."""
        measured = "" if self._measured_by is None else f"/{self._measured_by}"
        return f"{self._source.fingerprint}/{self.name}{measured}"

    def length(self, index: SupportsIndex) -> int:
        """Returns the length of a record in tokens or pixels, from the index."""
        return self._handle().length(self._ordinal(operator.index(index)))

    def lengths(self) -> npt.NDArray[np.uint64]:
        """Returns the lengths of all records in tokens or pixels, from the index."""
        return self._handle().lengths()

    def index_column(self, name: str) -> npt.NDArray[np.uint32]:
        """Returns a column of the record index, such as the field `patches`, for all records, without reading them."""
        return self._handle().index_column(name)

    def with_length(self, name: str) -> Split:
        """Returns the same split, whose records are measured by a column of the record index instead of their length:
        loaders and samplers count it in buckets and budgets."""
        return Split(
            self._source, self.name, fields=self._fields, decode=self._decode, transform=self.transform, measured_by=name
        )

    def describe(self) -> dict[str, Any]:
        """Returns counts, sizes, lengths and histograms of this split, as in `dsconvert inspect --json`."""
        splits: dict[str, dict[str, Any]] = self.dataset.describe()["splits"]
        return splits[self.name]

    def select(self, fields: Sequence[str]) -> Split:
        """Returns the same split with only these fields."""
        return Split(
            self._source,
            self.name,
            fields=fields,
            decode=self._decode,
            transform=self.transform,
            measured_by=self._measured_by,
        )

    def with_transform(self, transform: Transform | None) -> Split:
        """Returns the same split with another transform."""
        return Split(
            self._source,
            self.name,
            fields=self._fields,
            decode=self._decode,
            transform=transform,
            measured_by=self._measured_by,
        )

    def _repr_html_(self) -> str:
        """Returns the number of records and the fields as an HTML table, for notebooks."""
        rows = {
            "dataset": self.path,
            "content": f"{self.kind} as {self.format}",
            "records": f"{self._length:,}",
            **{f"field {name}": kind for name, kind in self.fields.items()},
        }
        return table(f"Split {self.name}", rows)

    def __repr__(self) -> str:
        fields = ", ".join(self.fields)
        return f"<dsconvert.Split {self.name!r} of {self.path!r}: {counted(self._length, 'record')} with {fields}>"


class Concatenation(Split):
    """The records of several splits, one split after another. `dsconvert.open([a, b])` returns one."""

    def __init__(
        self,
        parts: Sequence[tuple[str, Split]],
        *,
        merge_classes: bool = False,
        transform: Transform | None = None,
    ) -> None:
        for name, part in parts:
            if part.transform is not None:
                raise UsageError(
                    f"the transform of {name} does not apply: it is read as one with other datasets",
                    remedy="pass split.with_transform(None), and give the function to open or to the Loader",
                )
        self._parts = list(parts)
        self._merge_classes = merge_classes
        self.name = ", ".join(dict.fromkeys(part.name for _, part in parts))
        self.transform = transform
        self._decode = any(part._decode for _, part in parts)
        self._process = 0
        self._length = len(self._handle())

    def _open(self) -> _native.Split:
        return _native.Split.concatenated([(name, part._handle()) for name, part in self._parts], self._merge_classes)

    def _with(self, change: Callable[[Split], Split]) -> Concatenation:
        """Returns the same with changed parts."""
        parts = [(name, change(part)) for name, part in self._parts]
        return Concatenation(parts, merge_classes=self._merge_classes, transform=self.transform)

    def _stored(self, fields: Sequence[str] | None, decode: bool) -> Split:
        return self._with(lambda part: part._stored(fields, decode)).with_transform(None)

    @property
    def path(self) -> str:
        """The directories or URLs of the datasets, separated by commas."""
        return ", ".join(dict.fromkeys(part.path for _, part in self._parts))

    @property
    def kind(self) -> str:
        """`images`, `text` or `records`."""
        return self._handle().kind

    @property
    def format(self) -> str:
        """The formats of the datasets, separated by commas."""
        return ", ".join(dict.fromkeys(part.format for _, part in self._parts))

    @property
    def class_names(self) -> list[str]:
        """Names of the classes, in the order of their labels."""
        return self._handle().class_names

    @property
    def fingerprint(self) -> str:
        """Identifier of the records of all datasets in saved states."""
        return self._handle().fingerprint

    @property
    def dataset(self) -> Dataset:
        """Raises an error: there are several."""
        raise UsageError("several datasets that are read as one have no common dataset", remedy="open each by itself")

    def describe(self) -> dict[str, Any]:
        """Raises an error: each dataset has its own description."""
        raise UsageError(
            "several datasets that are read as one have no common description", remedy="describe each by itself"
        )

    def select(self, fields: Sequence[str]) -> Split:
        """Returns the same records with only these fields."""
        return self._with(lambda part: part.select(fields))

    def with_length(self, name: str) -> Split:
        """Refused: several datasets have no common record index."""
        self._handle().index_column(name)
        raise AssertionError("a concatenation has no record index")

    def with_transform(self, transform: Transform | None) -> Split:
        """Returns the same records with another transform."""
        return Concatenation(self._parts, merge_classes=self._merge_classes, transform=transform)


class Dataset(DatasetProperties, MapDataset):
    """An open dataset. `dataset["validation"]` is a split.

    Its records are those of the default split, `train` or the only one, so a dataset is itself a map-style dataset for
    `torch.utils.data.DataLoader`. It can be pickled and used after a fork.
    """

    def __init__(
        self,
        source: Source,
        *,
        fields: Sequence[str] | None = None,
        decode: bool = False,
        transform: Transform | None = None,
    ) -> None:
        self._source = source
        self._fields = _names(fields)
        self._decode = decode
        self._transform = transform
        self._default: Split | None = None

    def split(self, name: str) -> Split:
        """Returns the split called `name`."""
        return Split(
            self._source, name, fields=self._fields, decode=self._decode, transform=self._transform
        )

    @property
    def default(self) -> Split:
        """The default split: `train`, or the only one."""
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
        """Returns a split by its name, and records of the default split by anything else."""
        return self.split(index) if isinstance(index, str) else self.default[index]

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> list[Any]:
        """Returns records of the default split. `DataLoader` calls this for a batch."""
        return self.default.__getitems__(indices)

    def __iter__(self) -> Iterator[Any]:
        """Iterates over all records of the default split in order."""
        return iter(self.default)

    def __add__(self, other: Any) -> ConcatDataset[Any]:
        """Concatenates both default splits as a `torch.utils.data.ConcatDataset`."""
        return self.default.__add__(other)

    @property
    def transform(self) -> Transform | None:
        """Function that is applied to each record."""
        return self._transform

    @property
    def fields(self) -> dict[str, str]:
        """Names and types of the fields of a record. All splits have the same fields."""
        return self.split(self.splits[0]).fields if self.splits else {}

    def length(self, index: SupportsIndex) -> int:
        """Returns the length of a record of the default split in tokens or pixels, from the index."""
        return self.default.length(index)

    def lengths(self) -> npt.NDArray[np.uint64]:
        """Returns the lengths of all records of the default split in tokens or pixels, from the index."""
        return self.default.lengths()

    def index_column(self, name: str) -> npt.NDArray[np.uint32]:
        """Returns a column of the record index of the default split for all records, without reading them."""
        return self.default.index_column(name)

    def with_length(self, name: str) -> Split:
        """Returns the default split, measured by a column of the record index."""
        return self.default.with_length(name)

    def select(self, fields: Sequence[str]) -> Dataset:
        """Returns the same dataset with only these fields."""
        selected = Dataset(self._source, fields=fields, decode=self._decode, transform=self._transform)
        selected._check_fields()
        return selected

    def with_transform(self, transform: Transform | None) -> Dataset:
        """Returns the same dataset with another transform."""
        return Dataset(self._source, fields=self._fields, decode=self._decode, transform=transform)

    def _check_fields(self) -> None:
        # All splits have the same fields.
        for name in self.splits[:1]:
            self.split(name)

    @property
    def splits(self) -> list[str]:
        """Names of the splits, in order."""
        return self._source.native().splits

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the sources of the dataset, and of the options it was made with."""
        return self._source.fingerprint

    def describe(self) -> dict[str, Any]:
        """Returns counts, sizes, lengths, histograms and labels, as in `dsconvert inspect --json`."""
        text, problems = self._source.native().describe()
        for problem in problems:
            warnings.warn(f"{self.path}: {problem}", stacklevel=2)
        described: dict[str, Any] = json.loads(text)
        return described

    def _repr_html_(self) -> str:
        """Returns counts, splits, fields, lengths and, for images, examples as HTML, for notebooks."""
        return self._source.native().summary_html()

    def __repr__(self) -> str:
        shown = self.splits[:MAX_SPLITS_SHOWN]
        splits = ", ".join(f"{name} ({counted(len(self.split(name)), 'record')})" for name in shown)
        more = f" and {len(self.splits) - MAX_SPLITS_SHOWN} more splits" if len(self.splits) > MAX_SPLITS_SHOWN else ""
        return f"<dsconvert.Dataset {self.path!r}: {self.kind} as {self.format}, {splits}{more}>"


class OpenOptions(TypedDict, total=False):
    """The options of `open` that all of its overloads have."""

    fields: Sequence[str] | None
    decode: bool
    transform: Transform | None
    add: Sequence[str | os.PathLike[str]] | None
    mmap: bool
    verify_checksums: bool
    open_shards: int | None
    read_ahead_bytes: int | None
    cache_dir: str | os.PathLike[str] | None
    cache_bytes: int | None
    storage_options: Mapping[str, str] | None


@overload
def open(path: str | os.PathLike[str], split: None = None, **options: Unpack[OpenOptions]) -> Dataset: ...
@overload
def open(path: str | os.PathLike[str], split: str, **options: Unpack[OpenOptions]) -> Split: ...
@overload
def open(
    path: Paths, split: str | None = None, *, merge_classes: bool = ..., **options: Unpack[OpenOptions]
) -> Split: ...
@tips_for_keywords
def open(
    path: str | os.PathLike[str] | Paths,
    split: str | None = None,
    *,
    fields: Sequence[str] | None = None,
    decode: bool = False,
    transform: Transform | None = None,
    add: Sequence[str | os.PathLike[str]] | None = None,
    merge_classes: bool = False,
    mmap: bool = True,
    verify_checksums: bool = True,
    open_shards: int | None = None,
    read_ahead_bytes: int | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    cache_bytes: int | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Dataset | Split:
    """Opens the dataset in the directory or at the URL `path`, or one split of it, or several datasets as one split.

    Fields, splits and options are checked here, not when the first record is read.

    Args:
        path: Directory that `dsconvert images` or `dsconvert text` has written, or a URL such as `s3://bucket/dataset`
            (`gs://`, `az://`, `https://`). Credentials come from the environment. A list of them returns the records of all, one
            dataset after another, with the fields that all have.
        split: Name of a split. With it, a `Split` is returned; without it, the whole `Dataset`. With a list of paths, the default
            is that of each dataset: `train`, or the only one. Default: `None`.
        fields: Names of the fields to return, in any order. Parquet reads only these columns if `verify_checksums` is
            `False`. Default: all fields.
        decode: Images only. `True`: the field `image` is a `uint8` array of height × width × 3. `False`: it is the encoded
            image as `bytes`. Default: `False`.
        transform: Function that is applied to each record, in the process that reads it. A `Loader` rejects a dataset
            with a transform, and has its own option `transform`. Default: `None`.
        add: Paths of companions, whose fields are added to the records (`add_fields`). Not with a list of paths: open each
            dataset with its companions, and pass the list to the `Loader`. Default: `None`.
        merge_classes: With a list of paths: classes of the same name are one class. `False` requires that all datasets have
            the same classes. Default: `False`.
        mmap: `True` maps files into memory. If another process truncates a mapped file, the system kills Python (SIGBUS).
            `False` reads files instead and raises an error, for files that may change while they are used.
            Default: `True`.
        verify_checksums: Compares each record with its CRC32C, which requires reading all its fields, and each index
            file with its SHA-256 before the first length is returned. Default: `True`.
        open_shards: Maximum number of shards of a split to keep open, at least 1. Default: chosen by the library.
        read_ahead_bytes: Parquet only. Bytes of a row group that are read ahead. Default: chosen by the library.
        cache_dir: Object storage only. Path of a local directory that caches what was read, for later epochs and for
            all processes of the machine. Default: each process caches about 256 MiB in memory.
        cache_bytes: Maximum number of bytes in `cache_dir`: the shards that were opened least recently are removed.
            Default: 64 GiB.
        storage_options: Object storage only. Options of the store that override the environment, such as
            `{"endpoint_url": "http://localhost:9000", "region": "us-east-1"}`. Default: the environment.

    Raises:
        UsageError: There is no such split or field, or an option does not apply.
        IoError: There is no dataset at `path`, or it cannot be read.
        CorruptError: The manifest or an index is damaged.
        UnsupportedError: The dataset was written by a newer version of dsconvert.
    """
    if merge_classes and not isinstance(path, (list, tuple)):
        raise UsageError("merge_classes does not apply: a single dataset is opened")
    if add and isinstance(path, (list, tuple)):
        raise UsageError(
            "add does not apply to a list of paths",
            remedy="open each dataset with its companions, and pass a list of the datasets",
        )
    options = {
        "add": companions(add),
        "mmap": mmap,
        "verify_checksums": verify_checksums,
        "open_shards": None if open_shards is None else integer("open_shards", open_shards, least=1),
        "read_ahead_bytes": None if read_ahead_bytes is None else integer("read_ahead_bytes", read_ahead_bytes),
        "cache_dir": None if cache_dir is None else _cache_dir(os.fspath(cache_dir)),
        "cache_bytes": None if cache_bytes is None else integer("cache_bytes", cache_bytes),
        "storage_options": None if storage_options is None else _storage_options(storage_options),
    }

    def opened(path: str | os.PathLike[str], transform: Transform | None) -> Dataset:
        source = Source(path_or_url(path), options)
        dataset = Dataset(source, fields=fields, decode=decode, transform=transform)
        if decode and dataset.kind != "images":
            raise UsageError(f"decode does not apply: the dataset holds {dataset.kind}", place=Place(source.path))
        if read_ahead_bytes is not None and dataset.format != "parquet":
            raise UsageError(
                f"read_ahead_bytes does not apply: the dataset has the format {dataset.format}", place=Place(source.path)
            )
        if fields is not None:
            dataset._check_fields()
            if decode and not {"image", "mask"}.intersection(dataset.fields.values()):
                raise UsageError("decode does not apply: fields has no image", place=Place(source.path))
        return dataset

    if isinstance(path, (list, tuple)):
        parts = [split_of(opened(each, None), split) for each in path]
        return Concatenation(_named(parts), merge_classes=merge_classes, transform=transform)
    dataset = opened(path, transform)
    return dataset if split is None else dataset.split(split)


def companions(add: Sequence[str | os.PathLike[str]] | None) -> list[str] | None:
    """Returns the paths of companions, absolute."""
    if isinstance(add, (str, os.PathLike)):
        raise UsageError(f"add is {add!r}, not a list of paths", remedy=f"pass add=[{os.fspath(add)!r}]")
    return None if add is None else [path_or_url(each) for each in add]


def path_or_url(path: str | os.PathLike[str]) -> str:
    """Returns a path that is valid in every working directory."""
    location = os.fspath(path)
    return location if "://" in location else os.path.abspath(location)


def _names(fields: Sequence[str] | None) -> list[str] | None:
    if isinstance(fields, str):
        raise UsageError(f"fields is {fields!r}, not a list of names", remedy=f"pass fields=[{fields!r}]")
    return None if fields is None else list(fields)


def _cache_dir(path: str) -> str:
    # Rust refuses these, which would become a folder of the working directory.
    return path if not path or "://" in path else os.path.abspath(path)


def _storage_options(options: Mapping[str, str]) -> dict[str, str]:
    if not isinstance(options, Mapping):
        raise UsageError(f"storage_options is {type(options).__name__}, not a dictionary of names and values")
    for name, value in options.items():
        if not isinstance(name, str):
            raise UsageError(f"storage_options has the name {name!r}, which is not a string")
        if not isinstance(value, str):
            # Not the value, which may be a secret.
            raise UsageError(f"storage_options[{name!r}] is {type(value).__name__}, not a string")
    return dict(options)


def split_of(
    source: str | os.PathLike[str] | Dataset | Split | Sequence[str | os.PathLike[str] | Dataset | Split],
    split: str | None,
    add: Sequence[str | os.PathLike[str]] | None = None,
) -> Split:
    """Returns the split that a sampler or loader reads."""
    if add and not isinstance(source, (str, os.PathLike)):
        raise UsageError(
            "add applies to the path of a dataset", remedy="open the dataset with its companions: dsconvert.open(path, add=…)"
        )
    if isinstance(source, (list, tuple)):
        return Concatenation(_named([split_of(each, split) for each in source]))
    if isinstance(source, Split):
        if split is not None and split != source.name:
            raise UsageError(f"split is {split!r}, but the source is the split {source.name!r}")
        return source
    dataset = source if isinstance(source, Dataset) else open(source, add=add)  # type: ignore[arg-type]
    return dataset.default if split is None else dataset.split(split)


def _named(parts: Sequence[Split]) -> list[tuple[str, Split]]:
    """Returns the parts with the names that messages use: their paths, if these differ."""
    paths = [part.path for part in parts]
    return [(part.path if paths.count(part.path) == 1 else f"{part.path}/{part.name}", part) for part in parts]
