"""Checks of arguments before they are passed to Rust, whose own conversions raise errors without the name."""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Mapping
from typing import Any

from .errors import UsageError

MAX_INTEGER = 2**64 - 1
"""The largest integer that Rust accepts."""
MAX_COUNT = 2**63 - 1
"""The largest number of ranks or micro-batches."""


def integer(name: str, value: Any, most: int = MAX_INTEGER, least: int = 0) -> int:
    """Returns the argument `name` as an integer from `least` to `most`. Scalars of numpy and torch are integers, too."""
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if not least <= number <= most:
        raise UsageError(f"{name} cannot be {value!r}: expected an integer from {least} to {most}")
    return number


def plain(name: str, value: Any) -> Any:
    """Returns the value of the option `name` as a value that JSON can represent. It may contain scalars or arrays of
    numpy or torch. Rust checks the type."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(name, item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = [plain(name, item) for item in value]
        return tuple(items) if isinstance(value, tuple) else items
    try:
        number = operator.index(value)
    except TypeError:
        pass
    else:
        if number > MAX_INTEGER:
            raise UsageError(f"{name} cannot be {number}: the largest integer is {MAX_INTEGER}")
        return number
    if hasattr(value, "tolist"):  # an array
        return plain(name, value.tolist())
    try:
        real = float(value)
    except (TypeError, ValueError):
        raise UsageError(f"{name} cannot be {value!r}") from None
    if not math.isfinite(real):
        raise UsageError(f"{name} cannot be {real}: expected a finite number")
    return real


def state_as_json(state: Any) -> str:
    """Formats a saved state as JSON."""
    if not isinstance(state, Mapping):
        raise UsageError(f"state is {type(state).__name__}, not a dictionary", remedy="pass what state_dict() returned")
    try:
        return json.dumps(dict(state), default=operator.index)
    except (TypeError, ValueError) as error:
        raise UsageError(f"this is not a state: {error}", remedy="pass what state_dict() returned") from None
