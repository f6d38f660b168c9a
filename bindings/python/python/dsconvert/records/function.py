"""The function that makes records of items: what identifies it, and calls whose exceptions are outcomes of items."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import os
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..errors import Error, UsageError

AFTER_EXCEPTION = "halves"
"""Name of the rule that cuts a batch after an exception: both halves run again, down to single items."""


class Reject(Exception):
    """The item cannot become a record. A function returns or raises it with the reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = str(reason)


class StopRun(Exception):
    """A failure that no item is to blame for. The run stops and can be resumed."""


class Function:
    """`fn` of the user, as it is sent to the workers.

    A class is made once per worker, and a method `start` of an object is called once per worker, before the first item.
    """

    def __init__(self, fn: Any) -> None:
        if not callable(fn):
            raise UsageError(f"fn is of type {type(fn).__name__}, which cannot be called")
        self._fn = fn
        self._ready: Callable[[Any], Any] | None = None

    def identity(self) -> dict[str, Any]:
        """Returns the name and the parameters."""
        of = self._fn if self._is_named() else type(self._fn)
        name = f"{of.__module__}.{of.__qualname__}".removeprefix("__main__.").removeprefix("__mp_main__.")
        return {"name": name, "parameters": self._parameters()}

    def _is_named(self) -> bool:
        return isinstance(self._fn, (type, types.FunctionType, types.BuiltinFunctionType))

    def _parameters(self) -> dict[str, Any]:
        if self._is_named():
            return {}
        fn = self._fn
        if isinstance(fn, functools.partial):
            given = {str(number): value for number, value in enumerate(fn.args)} | fn.keywords
            given["of"] = Function(fn.func).identity()
        else:
            given = dict(getattr(fn, "__dict__", {}))
        try:
            parameters: dict[str, Any] = json.loads(json.dumps(given, sort_keys=True))
            return parameters
        except (TypeError, ValueError) as error:
            raise UsageError(
                f"the parameters of {type(fn).__qualname__} are not JSON: {error}",
                remedy="keep only plain values in the object, and make the rest in its method start",
            ) from None

    def source_digest(self) -> str | None:
        """Returns a digest of the source, if there is one."""
        of = self._fn if self._is_named() else type(self._fn)
        if isinstance(self._fn, functools.partial):
            return Function(self._fn.func).source_digest()
        try:
            return hashlib.sha256(inspect.getsource(of).encode()).hexdigest()
        except (OSError, TypeError):
            return None

    def start(self, device: str | None) -> None:
        """Makes what is made once per worker."""
        made = self._fn() if isinstance(self._fn, type) else self._fn
        if callable(start := getattr(made, "start", None)):
            start(*[device] if inspect.signature(start).parameters else [])
        self._ready = made

    def one(self, item: Any) -> Any:
        """Returns the result for an item: what `fn` returns, or the exception for which the item is to blame."""
        return self._called(item)

    def batch(self, items: Sequence[Any]) -> Iterator[Any]:
        """Yields the result of each item of a batch. After an exception, the halves of the batch run again."""
        made = self._called(list(items))
        if isinstance(made, (Exception, Reject)) and len(items) > 1:
            half = len(items) // 2
            yield from self.batch(items[:half])
            yield from self.batch(items[half:])
            return
        if isinstance(made, Exception):
            yield made
            return
        if isinstance(made, (str, bytes, dict)) or not hasattr(made, "__len__"):
            raise StopRun(f"fn returned {type(made).__name__} for a batch of {len(items)} items, not a list of their records")
        if len(made) != len(items):
            raise StopRun(f"fn returned {len(made)} results for a batch of {len(items)} items")
        yield from made

    def _called(self, argument: Any) -> Any:
        assert self._ready is not None
        process = os.getpid()
        try:
            made = self._ready(argument)
        except Reject as reject:
            made = reject
        except Exception as error:
            if os.getpid() == process and _is_of_the_machine(error):
                raise StopRun(f"{type(error).__name__}: {error}") from error
            made = error
        if os.getpid() != process:
            # `fn` has forked, and this is the child: the parent continues, and nothing here may touch the output.
            os._exit(1)
        return made


def _is_of_the_machine(error: Exception) -> bool:
    """Returns whether an exception says nothing about the item: a failure of the system, or too little memory."""
    text = str(error).lower()
    return (
        isinstance(error, (OSError, MemoryError, Error))
        or type(error).__name__ in ("OutOfMemoryError", "XlaRuntimeError")
        or "out of memory" in text
        or "cuda error" in text
    )
