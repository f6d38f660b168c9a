"""Mixtures: several datasets in given shares."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from . import _native
from .arguments import integer, plain
from .dataset import Concatenation, Dataset, Split, split_of
from .errors import UsageError
from .keywords import tips_for_keywords
from .source import Transform

Schedule = Sequence[tuple[int, Mapping[str, float]]]
"""Global steps, each with the weights from that step on."""


class Mixture(Concatenation):
    """Several datasets in given shares: a source for a `Loader`, with every option.

    As a split, it has the records of all datasets, one dataset after another. A `Loader` decides by the weights which
    records its batches hold, exactly and on every number of ranks. `docs/reference/batching.md` specifies the order.

    Args:
        weights: Weight of each dataset by its name. They are shares, and need not add up to 1.
        datasets: Path, `Dataset` or `Split` of each name. Default: the names are paths.
        split: Name of the split to read of each dataset. Default: `train`, or the only one.
        unit: What the weights are shares of: `"tokens"` after truncation (images: pixels), `"trained"`: tokens that are
            trained on, `"records"`: records or packed rows, `"epochs"`: passes over the datasets. Default: `"tokens"`.
        mix: `"record"`: batches hold records of several datasets. `"batch"`: the records of a micro-batch are of one dataset,
            and each dataset has its own buckets. Default: `"batch"` with buckets, else `"record"`.
        exhausted: When an epoch ends. `"never"`: after `epoch_tokens` or `epoch_steps`; datasets are repeated, each in a new
            order. `"first_exhausted"`, `"all_exhausted"`: with the step in which the first or last dataset ends. Default:
            `"never"`.
        schedule: Pairs of a global step, counted from the start of training, and the weights from that step on. Default: none.
        epoch_tokens: Tokens of an epoch, which ends with the step that reaches them.
        epoch_steps: Global steps of an epoch.
        on_change: What happens when a state was saved with other weights: `"refuse"`, or `"continue"`, which keeps the
            positions in the datasets. Default: `"refuse"`.
        merge_classes: Whether classes of the same name are one class. `False` requires that all datasets have the same
            classes. Default: `False`.

    Raises:
        UsageError: An option is wrong, or the datasets cannot be read as one.
    """

    @tips_for_keywords
    def __init__(
        self,
        weights: Mapping[str, float],
        *,
        datasets: Mapping[str, str | os.PathLike[str] | Dataset | Split] | None = None,
        split: str | None = None,
        unit: Literal["tokens", "trained", "records", "epochs"] = "tokens",
        mix: Literal["record", "batch"] | None = None,
        exhausted: Literal["never", "first_exhausted", "all_exhausted"] = "never",
        schedule: Schedule | None = None,
        epoch_tokens: int | None = None,
        epoch_steps: int | None = None,
        on_change: Literal["refuse", "continue"] = "refuse",
        merge_classes: bool = False,
    ) -> None:
        given = _weights("weights", weights)
        if datasets is None:
            datasets = {name: name for name in given}
        for name in given:
            if name not in datasets:
                raise UsageError(
                    f"there is a weight for {name!r}, which is not a dataset of the mixture",
                    remedy=f"its datasets are {', '.join(datasets)}",
                )
        options = {
            "unit": unit,
            "mix": mix,
            "exhausted": exhausted,
            "epoch_tokens": None if epoch_tokens is None else integer("epoch_tokens", epoch_tokens),
            "epoch_steps": None if epoch_steps is None else integer("epoch_steps", epoch_steps),
            "on_change": on_change,
        }
        self._given = {name: value for name, value in options.items() if value is not None}
        self._weights = given
        self._schedule = [_segment(entry) for entry in schedule or ()]
        names = [*given, *(name for name in datasets if name not in given)]
        super().__init__([(name, split_of(datasets[name], split)) for name in names], merge_classes=merge_classes)

    def _open(self) -> _native.Split:
        schedule = [(step, list(weights.items())) for step, weights in self._schedule]
        options = {**self._given, "weights": list(self._weights.items()), "schedule": schedule}
        parts = [(name, part._handle()) for name, part in self._parts]
        return _native.Split.mixture(parts, self._merge_classes, json.dumps(options))

    @property
    def weights(self) -> dict[str, float]:
        """The weights as they were given."""
        return dict(self._weights)

    @property
    def names(self) -> list[str]:
        """Names of the datasets, in the order of the numbers in `source`."""
        return [name for name, _ in self._parts]

    def select(self, fields: Sequence[str]) -> Split:
        """Returns the same mixture with only these fields."""
        selected = Mixture.__new__(Mixture)
        selected.__dict__.update(self.__dict__, _process=0)
        selected._parts = [(name, part.select(fields)) for name, part in self._parts]
        selected._handle()
        return selected

    def with_transform(self, transform: Transform | None) -> Split:
        """Returns the records of all datasets with another transform, without weights: a `Loader` has its own transform."""
        return super().with_transform(transform)

    def __repr__(self) -> str:
        weights = ", ".join(f"{name!r}: {weight}" for name, weight in self._weights.items())
        schedule = {"schedule": self._schedule} if self._schedule else {}
        options = ", ".join(f"{name}={value!r}" for name, value in {**self._given, **schedule}.items())
        return f"<dsconvert.Mixture {{{weights}}}: {options}>"


def _weights(name: str, weights: Any) -> dict[str, float]:
    if not isinstance(weights, Mapping):
        raise UsageError(f"{name} is {type(weights).__name__}, not a dictionary of names and numbers")
    return {os.fspath(key): _weight(key, weight) for key, weight in weights.items()}


def _weight(name: Any, weight: Any) -> float:
    number = plain(f"the weight of {name!r}", weight)
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise UsageError(f"the weight of {name!r} cannot be {weight!r}: expected a number")
    return float(number)


def _segment(entry: Any) -> tuple[int, dict[str, float]]:
    try:
        step, weights = entry
    except (TypeError, ValueError):
        raise UsageError(f"schedule has {entry!r}, not a pair of a global step and weights") from None
    return integer("a step of the schedule", step), _weights("the weights of the schedule", weights)
