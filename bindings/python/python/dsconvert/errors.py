"""What can go wrong. Every error of dsconvert is an `Error`; what sort it is decides the class, and what else it is."""

from __future__ import annotations

from typing import Any, NamedTuple


class Place(NamedTuple):
    """Where it went wrong, as far as it is known."""

    path: str | None = None
    """File or directory."""
    offset: int | None = None
    """Byte in that file."""
    shard: str | None = None
    """Name of the shard."""
    row: int | None = None
    """Ordinal of the record in its split or, with a shard, in its shard."""


class Error(Exception):
    """Any error of dsconvert. The message names the place; the remedy, if there is one, is a note of the exception."""

    kind: str = "other"
    """The sort of failure: `usage`, `io`, `corrupt`, `unsupported`, `out-of-range`, `not-committed`, `interrupted`,
    `internal`."""
    place: Place
    """Where it went wrong."""
    remedy: str | None
    """What the person can do, when there is something."""

    def __init__(
        self,
        message: str,
        *,
        kind: str | None = None,
        place: tuple[str | None, int | None, str | None, int | None] = Place(),
        remedy: str | None = None,
    ) -> None:
        # One argument, from which pickle and DataLoader workers can make the exception again.
        super().__init__(message)
        if kind is not None:
            self.kind = kind
        self.place = Place(*place)
        self.remedy = remedy
        if remedy is not None:
            self.add_note(remedy)


class UsageError(Error, ValueError):
    """Options that contradict each other, or something that is not there: a split, a field."""

    kind = "usage"


class IoError(Error, OSError):
    """The system cannot read a file, or there is no dataset."""

    kind = "io"

    def __init__(self, message: str, *, errno: int | None = None, **rest: Any) -> None:
        super().__init__(message, **rest)
        if errno is not None:
            self.errno = errno


class CorruptError(Error):
    """Bytes of the dataset are not those that were written."""

    kind = "corrupt"


class UnsupportedError(Error):
    """The dataset is of a newer dsconvert, or uses what this build lacks."""

    kind = "unsupported"


class OutOfRangeError(Error, IndexError):
    """There is no such record, step or batch."""

    kind = "out-of-range"


class NotCommittedError(Error):
    """A conversion ended without a dataset."""

    kind = "not-committed"


class InternalError(Error):
    """A bug in dsconvert or in a library that it uses, to be reported."""

    kind = "internal"
