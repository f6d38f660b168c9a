"""Values of records in the form in which `_native.UnitWriter` takes them."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

from .types import DTYPES, KEY, Field, Schema


class InvalidRecord(Exception):
    """A record does not fit the schema: the code of a reject, and why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def values(schema: Schema, record: Mapping[str, Any], key: str) -> list[Any]:
    """Returns the values of `record`, the key first. `key` is that of a record without one."""
    own = record.get(KEY, key)
    if not isinstance(own, str) or not own:
        raise InvalidRecord("wrong-type", f"field 'key' is of type string, not of {type(own).__name__} ({own!r:.40})")
    found: list[Any] = [own]
    for field in schema.fields:
        value = record.get(field.name)
        if value is None:
            if not field.nullable:
                state = "null" if field.name in record else "missing"
                raise InvalidRecord("missing-field", f"field {field.name!r} is {state}; expected {field.type}")
            found.append(None)
        else:
            found.append(_value(field, value))
    unknown = [name for name in record if name != KEY and all(field.name != name for field in schema.fields)]
    if unknown:
        names = ", ".join(field.name for field in schema.fields)
        raise InvalidRecord("wrong-type", f"the schema has no field {unknown[0]!r}; its fields are key, {names}")
    return found


def _value(field: Field, value: Any) -> Any:
    of = field.array_type()
    if of is not None:
        return _array(field, value, *of)
    match field.type:
        case "json":
            if isinstance(value, str):
                return value
            try:
                return json.dumps(value, ensure_ascii=False, allow_nan=False)
            except (TypeError, ValueError) as error:
                raise InvalidRecord("invalid-value", f"field {field.name!r} is not JSON: {error}") from None
        case "image":
            return _image(value)
        case "list<image>" if isinstance(value, (list, tuple)):
            return [_image(item) for item in value]
        case "ids<u16>" | "ids<u32>":
            return _ids(field, value)
        case _:
            # Numbers of numpy and torch.
            if hasattr(value, "item") and getattr(value, "shape", None) == ():
                return value.item()
            return value


def _image(value: Any) -> Any:
    """Returns the bytes of a file. An image of Pillow becomes a PNG."""
    if hasattr(value, "save") and hasattr(value, "getbands"):
        file = io.BytesIO()
        value.save(file, format="PNG")
        return file.getvalue()
    return value


def _ids(field: Field, value: Any) -> bytes:
    import numpy as np

    width = np.dtype("uint16" if field.type == "ids<u16>" else "uint32")
    numbers = np.asarray(_on_cpu(value))
    if numbers.size == 0:
        return b""
    limit = 256**width.itemsize - 1
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise InvalidRecord(
            "wrong-type", f"field {field.name!r} is of type {field.type}, not of {numbers.dtype}{list(numbers.shape)}"
        )
    if int(numbers.min()) < 0 or int(numbers.max()) > limit:
        raise InvalidRecord("invalid-value", f"field {field.name!r} has a number outside 0 to {limit}")
    return numbers.astype(width.newbyteorder("<")).tobytes()


def _on_cpu(value: Any) -> Any:
    """Returns a tensor of torch as an array of numpy, which has bfloat16 as uint16, and other values unchanged."""
    if not hasattr(value, "detach"):
        return value
    import torch

    value = value.detach().cpu().contiguous()
    return (value.view(torch.uint16) if value.dtype is torch.bfloat16 else value).numpy()


def _array(field: Field, value: Any, dtype: str, axes: list[int | None]) -> tuple[list[int], memoryview | bytes]:
    """Returns the shape and the little-endian numbers."""
    import numpy as np

    given = str(getattr(value, "dtype", "")).removeprefix("torch.")
    stored = np.dtype("uint16" if dtype == "bfloat16" else dtype)
    numbers = _on_cpu(value)
    if not isinstance(numbers, np.ndarray):
        # Lists and numbers have no type of their own; other arrays keep theirs.
        if dtype == "bfloat16" and not given:
            raise InvalidRecord("wrong-type", f"field {field.name!r} is of type {field.type}, not of {type(value).__name__}")
        try:
            numbers = np.asarray(numbers) if given else np.asarray(numbers, dtype=stored)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidRecord("wrong-type", f"field {field.name!r} is of type {field.type}: {error}") from None
    given = given or str(numbers.dtype)
    # numpy has no bfloat16: as uint16, or with the type of ml_dtypes.
    if given != dtype and not (dtype == "bfloat16" and given == "uint16"):
        raise InvalidRecord("wrong-type", f"field {field.name!r} is of type {field.type}, not of {given}{list(numbers.shape)}")
    shape = list(numbers.shape)
    if len(shape) != len(axes) or any(axis not in (None, size) for axis, size in zip(axes, shape, strict=True)):
        raise InvalidRecord("wrong-type", f"field {field.name!r} is of type {field.type}, not of {given}{shape}")
    numbers = np.ascontiguousarray(numbers)
    if numbers.dtype.byteorder == ">":
        numbers = numbers.astype(numbers.dtype.newbyteorder("<"))
    assert numbers.dtype.itemsize == DTYPES[dtype]
    if numbers.size == 0:
        return shape, b""
    return shape, numbers.reshape(-1).view(np.uint8).data
