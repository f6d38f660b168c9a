"""Fields for the records of a dataset that exists, as a dataset of its own: a companion."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

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


def add_fields(
    base: Path,
    table: Path,
    out: Path,
    *,
    on: str = "key",
    fields: Sequence[str] | Mapping[str, str] | None = None,
    missing: Literal["error", "null"] = "error",
    pieces: Literal["record", "document"] | None = None,
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
    """Adds the columns of a table to the records of the dataset at `base`, as a dataset of its own at `out`.

    `dsconvert.open(base, add=[out])` reads both. `base` is not changed. The command `dsconvert add-fields` does the same.

    Args:
        base: Directory or URL of a dataset.
        table: Parquet or Arrow file, folder of such files, or dataset.
        out: Output directory or prefix in object storage.
        on: Column of the table with the keys of the records. Default: `"key"`.
        fields: Names of the columns that become fields, or a dictionary of fields and their columns. Default: all other columns.
        missing: Records without a row in the table: `"error"` refuses the table, `"null"` makes their fields null.
            Default: `"error"`.
        pieces: What the keys of the table are, if documents were divided into several records: `"record"` or `"document"`.
        read: Fields of `base` that the values were computed from: the result is bound to their content. Default: only keys
            are compared.
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
    return AddedFields(
        *_native.add_fields(path_or_url(base), path_or_url(table), json.dumps(options), companions(add) or [])
    )
