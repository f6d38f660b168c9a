"""Fields for the records of a dataset that exists, as a dataset of its own: a companion."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from . import _native
from .dataset import companions, path_or_url
from .errors import UsageError

Path = str | os.PathLike[str]


@dataclass(frozen=True)
class AddedFields:
    """What `add_fields` has written."""

    fields: list[str]
    """Names of the fields."""
    records: int
    """Number of records of the base."""
    missing: int
    """Number of records without a row in the table, whose fields are null."""
    surplus: int
    """Number of rows of the table that belong to no record."""
    was_complete: bool
    """Whether the same fields were written before."""
    committed: bool = True
    """Whether the fields are complete. Otherwise, other parts have units left."""


def add_fields(
    base: Path,
    values: Any,
    out: Path,
    schema: Mapping[str, str] | None = None,
    *,
    # Columns of a table.
    on: str = "key",
    fields: Sequence[str] | Mapping[str, str] | None = None,
    missing: Literal["error", "null"] = "error",
    pieces: Literal["record", "document"] | None = None,
    # A function.
    version: str | None = None,
    batch_size: int | None = None,
    workers: int | str = 0,
    group: Literal["shape"] | None = None,
    unit_records: int | None = None,
    part: tuple[int, int] = (1, 1),
    # Both.
    read: Sequence[str] = (),
    per: Mapping[str, str] | None = None,
    aligned: Mapping[str, Literal["target", "input"]] | None = None,
    of: Mapping[str, str] | None = None,
    flip: Mapping[str, str] | None = None,
    add: Sequence[Path] | None = None,
    format: Literal["arrow", "parquet", "msgpack", "protobuf"] = "arrow",
    resume: bool = False,
    overwrite: bool = False,
    scratch: Path | None = None,
) -> AddedFields:
    """Adds fields to the records of the dataset at `base`, as a dataset of its own at `out`: the columns of a table, or what a
    function computes of the records.

    `dsconvert.open(base, add=[out])` reads both. `base` is not changed. For tables, the command `dsconvert add-fields` does the
    same.

    Args:
        base: Directory or URL of a dataset.
        values: Path of a table: a Parquet or Arrow file, a folder of such files, or a dataset. Or a function of a record with `key` and
            the fields `read`, which returns a dictionary of the new fields; with `batch_size`, a function of a list of records that
            returns a list. `image` is a `uint8` array of height × width × RGB, upright, as it is stored. A class is made once per
            worker, as in `convert`.
        out: Output directory or prefix in object storage.
        schema: Function only: names and types of the fields, as in `convert`.
        on: Column of the table with the keys of the records. Default: `"key"`.
        fields: Names of the columns that become fields, or a dictionary of fields and their columns. Default: all other columns.
        missing: Records without a row in the table, or for which the function fails: `"error"` refuses the table or stops the run,
            `"null"` makes their fields null. Default: `"error"`.
        pieces: What the keys of the table are, if documents were divided into several records: `"record"` or `"document"`.
        version: Function only, and required: names what the values depend on besides the records and the parameters of the
            function.
        batch_size: Function only: records per call. A batch never crosses a unit. Default: a record is passed alone.
        workers: Function only: number of processes, 0 for this one, or `"cuda"`: one per GPU. Default: 0.
        group: Function only: with `"shape"`, the images of a batch have one size. The stored order stays. Default: `None`.
        unit_records: Function only: records of a unit. A kill loses the unfinished unit of each worker. Default: as in `convert`.
        part: Function only: the part of the units that this call computes, as (number from 1, count).
        read: Fields of `base` that the values are computed from: the result is bound to their content. Default for tables: only
            keys are compared.
        per: Fields with one number per token: `{"weights": "input_ids"}`.
        aligned: Of these, `"target"`: the number moves with the labels, and is 0 where a label is not trained on. `"input"`: it
            stays with the token. Default: `"target"`.
        of: Fields with one number for all tokens of a record, which must not be cut: `{"logprob": "input_ids"}`.
        flip: Fields of images that may be mirrored, with the fields for the mirrored image: `{"latent": "latent_flipped"}`.
        add: Paths of companions of `base`, whose fields `read` may name.
        format: Format of the shards. Default: `"arrow"`.
        resume: Finishes an interrupted run. Default: `False`.
        overwrite: Replaces the dataset at `out`. Default: `False`.
        scratch: Directory for temporary files. Default: that of the system.

    Raises:
        UsageError: The table does not fit the dataset. Nothing was written.
        IoError: A file cannot be read or written.
    """
    if resume and overwrite:
        raise UsageError("resume and overwrite exclude each other")
    if isinstance(fields, str) or isinstance(read, str):
        raise UsageError("fields and read are lists of names")
    allowed: list[tuple[str, str | None, tuple[str | None, ...]]] = [
        ("missing", missing, ("error", "null")),
        ("pieces", pieces, (None, "record", "document")),
        ("format", format, ("arrow", "parquet", "msgpack", "protobuf")),
        *((f"aligned[{name!r}]", word, ("target", "input")) for name, word in (aligned or {}).items()),
    ]
    for option, word, words in allowed:
        if word not in words:
            raise UsageError(f"{option} cannot be {word!r}: expected one of {', '.join(map(repr, words))}")
    named = None if fields is None else dict(fields) if isinstance(fields, Mapping) else {name: name for name in fields}
    bound: dict[str, dict[str, str]] = {}
    for option, given in (("per", per), ("aligned", aligned), ("of", of), ("flip", flip)):
        for name, value in (given or {}).items():
            bound.setdefault(name, {})[option] = str(value)
    options = {
        "on": on,
        "fields": None if named is None else [{"field": name, "column": column} for name, column in named.items()],
        "missing": missing,
        "pieces": pieces,
        "read": list(read),
        "bound": bound,
        "format": format,
        "out": path_or_url(out),
        "resume": resume,
        "overwrite": overwrite,
        "scratch": None if scratch is None else os.fspath(scratch),
    }
    computing = {
        "schema": schema, "version": version, "batch_size": batch_size, "group": group, "unit_records": unit_records,
        "workers": workers or None, "part": None if part == (1, 1) else part,
    }
    if not callable(values):
        for name, given_value in computing.items():
            if given_value is not None:
                raise UsageError(f"{name} does not apply to the columns of a table")
        return AddedFields(
            *_native.add_fields(path_or_url(base), path_or_url(values), json.dumps(options), companions(add) or [])
        )
    for name, does_apply in (("on", on == "key"), ("fields", fields is None), ("pieces", pieces is None)):
        if not does_apply:
            raise UsageError(f"{name} does not apply to what a function computes")
    if schema is None:
        raise UsageError("schema is missing", remedy='name the fields that the function returns, such as {"score": "float32"}')
    from .records.computed import compute

    done = compute(
        path_or_url(base), values, path_or_url(out), schema, read=list(read), bound=bound, companions=companions(add) or [],
        version=version or "", batch_size=batch_size, workers=workers, group=group, missing=missing, unit_records=unit_records,
        part=part, format=format, resume=resume, overwrite=overwrite, scratch=None if scratch is None else os.fspath(scratch),
    )
    return AddedFields(list(schema), done.records, done.missing, 0, done.was_complete, done.committed)
