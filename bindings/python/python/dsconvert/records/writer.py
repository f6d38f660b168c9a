"""`Writer`: a dataset of the records that one process writes, one after another."""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from .. import _native
from ..errors import Error, NotCommittedError, UsageError
from .columns import rows
from .types import KEY, Schema
from .inputs import default_key
from .values import InvalidRecord, values


class Writer:
    """Writes a dataset record by record, in a `with` statement. It is committed at the end of the statement.

    Nothing is committed if an exception leaves the statement, Ctrl-C included, nor if the process ends or dies in it. What
    was written is removed then, unless the process was killed. Only the process that entered the statement writes.

    Args:
        out: Directory, or URL of a prefix in object storage.
        schema: Names and types of the fields, as for `convert`.
        splits: Names of the splits.
        index: Names of fields of the type `uint32` or `uint64` that are columns of the record index.
        format: `arrow` or `parquet`; without arrays and lists, also `msgpack` or `protobuf`.
        shard_bytes: Bytes at which a shard is full.
        overwrite: Replace the dataset in `out`, which is removed when the statement is entered.
        scratch: Directory for temporary files of an output in object storage.
    """

    def __init__(
        self,
        out: str | os.PathLike[str],
        schema: Mapping[str, str],
        *,
        splits: Sequence[str] = ("train",),
        index: Sequence[str] = (),
        format: str = "arrow",
        shard_bytes: int = 256 << 20,
        overwrite: bool = False,
        scratch: str | os.PathLike[str] | None = None,
    ) -> None:
        if isinstance(splits, str):
            raise UsageError(f"splits is {splits!r}, not a list of names", remedy=f"such as splits=[{splits!r}]")
        self._out = os.fspath(out)
        self._schema = Schema(schema, index)
        self._splits = list(splits)
        self._described = self._schema.described()
        self._options = {
            # One unit: what a process that dies leaves cannot be continued, because the records come from outside.
            "units": 1,
            "fingerprint": json.dumps({"writer": self._described}, sort_keys=True),
            "splits": self._splits,
            "format": format,
            "shard_bytes": shard_bytes,
            "shard_records": None,
            "existing": "overwrite" if overwrite else "refuse",
            "scratch": None if scratch is None else os.fspath(scratch),
            "max_rejects": "0",
            "is_resumable": False,
        }
        self._opened: tuple[_native.DatasetWriter, _native.UnitWriter] | None = None
        self._is_over = False
        self._failure: BaseException | None = None
        self.records = 0
        """Number of records so far."""

    def __repr__(self) -> str:
        state = "closed" if self._is_over else "open" if self._opened else "not open"
        return f"<dsconvert.Writer {self._out!r}, {state}, {self.records:,} records>"

    def __enter__(self) -> Writer:
        if self._opened or self._is_over:
            raise UsageError("a writer is opened once", remedy="make another one")
        writer = _native.DatasetWriter(self._out, self._schema.json(), json.dumps(self._options), False)
        try:
            self._opened = writer, writer.unit(0)
        except BaseException:
            writer.abandon()
            raise
        # If the writer is dropped inside the statement, such as by a generator or at the end of the process.
        self._dropped = weakref.finalize(self, _drop, *self._opened)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        writer, unit = self._entered()
        if error is None and self._failure is None:
            try:
                # Refused in a forked process, before anything is taken from its parent.
                unit.finish()
                writer.commit(json.dumps({"writer": self._described}), [])
            except BaseException as failed:
                self._abandon(failed)
                raise
            self._end()
            return
        failure = error or NotCommittedError(
            f"nothing was committed, because a record could not be written: {self._failure}",
            remedy="write all records again",
        )
        self._abandon(failure)
        if error is None:
            raise failure from self._failure

    def write(self, record: Mapping[str, Any], *, key: str | None = None, split: str | None = None) -> None:
        """Writes a record.

        Args:
            record: Values by the names of the fields, as `convert` takes them.
            key: Key of the record, which is unique in the dataset; also `record["key"]`. Default: number of the record.
            split: Name of the split. It may be left out if there is only one.

        Raises:
            UsageError: The record does not fit the schema. It is not written, and others may follow.
            IoError: The record cannot be stored. Nothing is committed then.
        """
        _, unit = self._entered()
        split = self._split(split)
        if not isinstance(record, Mapping):
            raise UsageError(f"a record is a dictionary, not {type(record).__name__}")
        if key is not None:
            if KEY in record and record[KEY] != key:
                raise UsageError(f"the record has the key {record[KEY]!r}, and key is {key!r}")
            record = {**record, KEY: key}
        own = default_key(self.records)
        try:
            self._push(unit, values(self._schema, record, own), split)
        except (InvalidRecord, UsageError) as error:
            raise UsageError(
                f"the record {record.get(KEY, own)!r}: {_message(error)}", remedy="it was not written; the others are"
            ) from None
        self.records += 1

    def write_batch(self, columns: Any, *, split: str | None = None) -> None:
        """Writes a record for each row of a batch.

        Args:
            columns: Columns by name, all of one length: arrays, tensors or lists. Or a table with `__arrow_c_stream__` or
                `__arrow_c_array__`, such as those of pyarrow, polars, DuckDB and pandas, which needs pyarrow; it is read in
                pieces. A column `key` has the keys.
            split: Name of the split. It may be left out if there is only one.

        Raises:
            UsageError: A row does not fit the schema. The rows before it are written.
            IoError: A record cannot be stored. Nothing is committed then.
        """
        self._entered()
        split, written = self._split(split), 0
        records = rows(columns, self._schema)
        try:
            for record in records:
                self.write(record, split=split)
                written += 1
        except (InvalidRecord, UsageError) as error:
            raise UsageError(
                f"row {written} of the batch: {_message(error)}", remedy=f"the {written} rows before it were written"
            ) from None

    def _entered(self) -> tuple[_native.DatasetWriter, _native.UnitWriter]:
        if self._opened is None:
            if self._is_over:
                raise UsageError("the writer is closed")
            raise UsageError("the writer is not open", remedy="use it in a with statement: with dsconvert.Writer(…) as writer")
        return self._opened

    def _split(self, split: str | None) -> str:
        if split is None:
            if len(self._splits) != 1:
                raise UsageError(f"split is missing; the splits are {', '.join(self._splits)}")
            return self._splits[0]
        if split not in self._splits:
            raise UsageError(f"there is no split {split!r}; the splits are {', '.join(self._splits)}")
        return split

    def _push(self, unit: _native.UnitWriter, record: list[Any], split: str) -> None:
        if self._failure is not None:
            raise NotCommittedError(f"an earlier record could not be written: {self._failure}")
        try:
            unit.push(record, split)
        except UsageError:
            # The unit is as before.
            raise
        except BaseException as error:
            # Part of a record may be in a shard. An exception that the program catches must not hide that.
            self._failure = error
            raise

    def _abandon(self, failure: BaseException) -> None:
        writer, unit = self._entered()
        self._end()
        try:
            writer.abandon(unit)
        except Error as error:
            failure.add_note(f"and what was written could not be removed: {error}")

    def _end(self) -> None:
        self._opened, self._is_over = None, True
        self._dropped.detach()

    def __reduce__(self) -> Any:
        raise TypeError("a Writer belongs to one process, and cannot be sent to another")


def _message(error: InvalidRecord | UsageError) -> str:
    return error.message if isinstance(error, UsageError) else str(error)


def _drop(writer: _native.DatasetWriter, unit: _native.UnitWriter) -> None:
    try:
        writer.abandon(unit)
    except Error:
        # A forked process, or a directory that cannot be removed: nothing is committed in any case.
        pass
