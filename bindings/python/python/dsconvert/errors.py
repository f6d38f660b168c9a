"""Exceptions of dsconvert. Each is an `Error`; the kind of failure determines the class and its other base class."""

from __future__ import annotations

from typing import Any, NamedTuple


class Place(NamedTuple):
    """Location of a failure, as far as it is known."""

    path: str | None = None
    """File or directory."""
    offset: int | None = None
    """Byte offset in that file."""
    shard: str | None = None
    """Name of the shard."""
    row: int | None = None
    """Ordinal of the record in its split or, with a shard, in its shard."""


class Error(Exception):
    """Any error of dsconvert. The message states the location and, on a line of its own, the next step, if known."""

    kind: str = "other"
    """Kind of failure: `usage`, `io`, `corrupt`, `unsupported`, `out-of-range`, `not-committed`, `interrupted`,
    `internal`."""
    message: str
    """The message without the next step."""
    place: Place
    """Location of the failure."""
    remedy: str | None
    """What to do next, if known."""

    def __init__(
        self,
        message: str,
        *,
        kind: str | None = None,
        place: tuple[str | None, int | None, str | None, int | None] = Place(),
        remedy: str | None = None,
    ) -> None:
        # Only one argument, so that pickle and DataLoader workers can recreate the exception.
        super().__init__(message if remedy is None else f"{message}\n{remedy}")
        self.message = message
        if kind is not None:
            self.kind = kind
        self.place = Place(*place)
        self.remedy = remedy


class UsageError(Error, ValueError):
    """Options contradict each other, or something does not exist, such as a split or a field."""

    kind = "usage"


class UnknownOptionError(UsageError, TypeError):
    """A function has no such keyword argument. The next step names what replaces it."""


class MissingEntryError(UsageError, KeyError):
    """A batch has no such entry."""

    __str__ = Exception.__str__  # that of KeyError would show the message as a literal


class IoError(Error, OSError):
    """The system cannot read a file, or there is no dataset."""

    kind = "io"

    def __init__(self, message: str, *, errno: int | None = None, **rest: Any) -> None:
        super().__init__(message, **rest)
        if errno is not None:
            self.errno = errno

    def __reduce__(self) -> tuple[type[IoError], tuple[Any, ...], dict[str, Any]]:
        # `errno` is not in the dictionary of an OSError.
        return type(self), self.args, {**self.__dict__, "errno": self.errno}


class NotFoundError(IoError, FileNotFoundError):
    """A file or directory does not exist."""


class CorruptError(Error):
    """The dataset is damaged: its bytes differ from the ones that were written."""

    kind = "corrupt"


class UnsupportedError(Error):
    """The dataset was written by a newer dsconvert, or uses a feature that this build lacks."""

    kind = "unsupported"


class OutOfRangeError(Error, IndexError):
    """The record, step or batch does not exist."""

    kind = "out-of-range"


class NotCommittedError(Error):
    """A conversion ended without a dataset."""

    kind = "not-committed"


class InternalError(Error):
    """A bug in dsconvert or in a library that it uses, which should be reported."""

    kind = "internal"
