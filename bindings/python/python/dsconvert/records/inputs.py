"""What `convert` reads: items with numbers, and what identifies them all."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ..dataset import Split
from ..errors import UsageError


def default_key(number: int) -> str:
    """Returns the key of the record with this number."""
    return f"{number:09d}"


class Items:
    """Items with numbers from 0, in any process. `identity` is compared when a run is resumed."""

    identity: dict[str, Any]

    def __len__(self) -> int:
        raise NotImplementedError

    def __getitem__(self, number: int) -> Any:
        raise NotImplementedError

    def key(self, number: int, item: Any) -> str:
        """Returns the key of an item whose record has none."""
        return default_key(number)


class SequenceItems(Items):
    """The items of a sequence."""

    def __init__(self, items: Sequence[Any] | Split, identity: dict[str, Any]) -> None:
        self._items = items
        self.identity = {**identity, "items": len(items)}

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, number: int) -> Any:
        return self._items[number]


class RecordItems(SequenceItems):
    """The records of a split, which have keys."""

    def key(self, number: int, item: Any) -> str:
        return item["key"] if isinstance(item, dict) and isinstance(item.get("key"), str) else super().key(number, item)


class TableItems(Items):
    """The rows of a Parquet or Arrow file as dictionaries. Every process opens the file itself."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._rows: Any = None
        digest = hashlib.sha256()
        with open(path, "rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
        self.identity = {"table": os.path.basename(path), "sha256": digest.hexdigest(), "items": len(self)}

    def _table(self) -> Any:
        if self._rows is None:
            import pyarrow as pa  # type: ignore[import-untyped]
            import pyarrow.parquet as pq  # type: ignore[import-untyped]

            if self._path.endswith(".parquet"):
                self._rows = pq.read_table(self._path, memory_map=True)
            else:
                file = pa.memory_map(self._path)
                try:
                    self._rows = pa.ipc.open_file(file).read_all()
                except pa.ArrowInvalid:
                    file.seek(0)
                    self._rows = pa.ipc.open_stream(file).read_all()
        return self._rows

    def __len__(self) -> int:
        return int(self._table().num_rows)

    def __getitem__(self, number: int) -> Any:
        return self._table().slice(number, 1).to_pylist()[0]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_rows": None}


class SpooledItems(Items):
    """The items of a generator, which only this process can read: stored in a temporary file, one after the other."""

    def __init__(self, items: Iterable[Any], scratch: str | None) -> None:
        digest = hashlib.sha256()
        self._ends = [0]
        # Closed, and then removed, when the last reference to it disappears.
        self._file = tempfile.NamedTemporaryFile(prefix="dsconvert-items-", dir=scratch)
        for number, item in enumerate(items):
            try:
                content = pickle.dumps(item, protocol=5)
            except Exception as error:
                raise UsageError(
                    f"item {number} of the generator cannot be pickled: {error}", remedy="yield paths or plain values"
                ) from error
            digest.update(len(content).to_bytes(8, "little"))
            digest.update(content)
            self._file.write(content)
            self._ends.append(self._ends[-1] + len(content))
        self._file.flush()
        self._path = self._file.name
        self.identity = {"sha256": digest.hexdigest(), "items": len(self)}

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, number: int) -> Any:
        if self._file is None:
            self._file = open(self._path, "rb")  # noqa: SIM115
        begin, end = self._ends[number : number + 2]
        return pickle.loads(os.pread(self._file.fileno(), end - begin, begin))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_file": None}


def items_of(inputs: Any, scratch: str | None) -> Items:
    """Returns the items of `inputs`, of any of the forms that `convert` takes."""
    if isinstance(inputs, Split):
        if getattr(inputs, "transform", None) is not None:
            raise UsageError("the records of a split with a transform are not identified", remedy="do it in fn")
        dataset = {"fingerprint": inputs.fingerprint, "split": inputs.name}
        return RecordItems(inputs, {"dataset": dataset, "fields": list(dict(inputs.fields))})
    if isinstance(inputs, (str, os.PathLike)):
        path = os.fspath(inputs)
        if os.path.splitext(path)[1] not in (".parquet", ".arrow", ".feather"):
            raise UsageError(
                f"{path!r} is neither a Parquet nor an Arrow file", remedy="open a dataset with dsconvert.open(path, split)"
            )
        return TableItems(os.path.abspath(path))
    if isinstance(inputs, Iterator) or not (hasattr(inputs, "__len__") and hasattr(inputs, "__getitem__")):
        if not isinstance(inputs, Iterable):
            raise UsageError(f"inputs is of type {type(inputs).__name__}, which has no items")
        return SpooledItems(inputs, scratch)
    # `datasets.Dataset` changes its fingerprint with its content.
    own = getattr(inputs, "_fingerprint", None) or getattr(inputs, "fingerprint", None)
    if own is not None:
        return SequenceItems(inputs, {"fingerprint": str(own)})
    if isinstance(inputs, dict):
        raise UsageError("inputs is a dictionary, whose items have no order", remedy="pass list(inputs.items())")
    if isinstance(inputs, (list, tuple, range)):
        return SequenceItems(inputs, {"sha256": _digest(inputs)})
    # The content of a sequence of one's own is not read in advance.
    return SequenceItems(inputs, {"sequence": type(inputs).__qualname__})


def _digest(items: Iterable[Any]) -> str:
    digest = hashlib.sha256()
    for number, item in enumerate(items):
        try:
            content = json.dumps(item, sort_keys=True).encode()
        except (TypeError, ValueError):
            try:
                content = pickle.dumps(item, protocol=5)
            except Exception as error:
                raise UsageError(f"item {number} of inputs cannot be pickled: {error}") from error
        digest.update(len(content).to_bytes(8, "little"))
        digest.update(content)
    return digest.hexdigest()
