"""The opened dataset behind datasets and splits, which reopens itself in other processes."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from . import _native
from .errors import Place, UsageError

Record = dict[str, Any]
"""A record: names and values of its fields. Text and JSON are `str`; images and other bytes are `bytes` or, if decoded,
`uint8` arrays of height × width × channels; token ids are `uint16` or `uint32` arrays, which are read-only views of
the mapped file where possible; numbers are `int`, `float` and `bool`. A missing value is `None`."""

Transform = Callable[[Record], Any]


class Source:
    """A dataset that reopens itself in every process that receives it by fork or by pickle."""

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
                    f"{self.path}: the dataset was replaced after it was opened",
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


class DatasetProperties:
    """Properties that a dataset and its splits share."""

    _source: Source

    @property
    def path(self) -> str:
        """The directory or URL of the dataset."""
        return self._source.path

    @property
    def kind(self) -> str:
        """`images`, `text` or `records`."""
        return self._source.native().kind

    @property
    def format(self) -> str:
        """`parquet`, `arrow`, `msgpack` or `protobuf`."""
        return self._source.native().format

    @property
    def class_names(self) -> list[str]:
        """Names of the classes, in the order of their labels. All splits have the same classes."""
        return self._source.native().class_names
