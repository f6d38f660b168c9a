"""Batches of tensors, which name their entries if a program asks for another one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from torch.utils import _pytree

from .errors import MissingEntryError


class TensorBatch(dict[str, Any]):
    """A dictionary of names and tensors. Registered with torch, which treats other subclasses of `dict` as one value."""

    def __missing__(self, name: object) -> NoReturn:
        raise MissingEntryError(
            f"the batch has no entry {name!r}",
            remedy=f"it has {', '.join(self)}; fields=[…] of the Loader selects entries, also other fields of the records",
        )


def _flatten(batch: TensorBatch) -> tuple[list[Any], list[str]]:
    return list(batch.values()), list(batch)


def _flatten_with_keys(batch: TensorBatch) -> tuple[list[tuple[Any, Any]], list[str]]:
    return [(_pytree.MappingKey(name), value) for name, value in batch.items()], list(batch)


def _unflatten(values: Iterable[Any], names: list[str]) -> TensorBatch:
    return TensorBatch(zip(names, values, strict=True))


_pytree.register_pytree_node(
    TensorBatch,
    _flatten,
    _unflatten,
    serialized_type_name="dsconvert.TensorBatch",
    flatten_with_keys_fn=_flatten_with_keys,
)
