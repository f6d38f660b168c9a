"""Epochs and states, shared by samplers and loaders."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from . import _native
from .arguments import MAX_COUNT, MAX_INTEGER, integer, plain
from .errors import OutOfRangeError, UsageError
from .ranks import Layout, logger

State = dict[str, Any]
"""The result of `state_dict()`: a small dictionary, equal on every rank, that JSON can represent."""
Last: TypeAlias = Literal["short", "drop", "pad", "wrap"]

OPTIONS = [name for name, *_ in _native.option_table() if name != "micro_batches"]
"""Names of the options that are passed to Rust unchanged, in the order of the signatures."""


class SourceShare(NamedTuple):
    """The share of one dataset of a mixture, in the steps since the weights changed."""

    requested: float
    """The requested share."""
    realized: float
    """The share up to this step."""
    epochs: float
    """Passes over the dataset since the start of training."""


class StepTotals(NamedTuple):
    """Totals of all ranks in one global step: the same numbers on every rank, without communication."""

    rows: int
    """Rows that hold a record or, when packed, tokens."""
    tokens: int
    """Sum of the lengths."""
    padded_tokens: int
    """Sum of rows × width; where nothing is padded, that of the lengths."""
    labels: int | None = None
    """Positions that have a label, in packed rows."""
    trained: int | None = None
    """Tokens that the loss is computed on; `None` if batches have no labels, or are rows packed on disk without masks."""
    sources: dict[str, SourceShare] | None = None
    """The datasets of a mixture, by name."""
    columns: dict[str, int] | None = None
    """Sums of columns of the record index, by name, such as `patches`: those that the dataset names, and that of the second
    budget. `None` if there are none."""


class Epochs(ABC):
    """Counts epochs: each `iter()` is one. The first is epoch 0, the epoch that `set_epoch` sets, or the rest of the
    epoch of a loaded state. Each later one is the next epoch.
    """

    _passed: dict[str, Any]
    """The keywords that were passed to the constructor, while it runs (`tips_for_keywords`)."""

    def __init__(self, layout: Layout, micro_batches: int | None) -> None:
        self._layout = layout
        self._micro_batches_given = micro_batches is not None
        self._micro_batches = (
            layout.ranks if micro_batches is None else integer("micro_batches", micro_batches, MAX_COUNT)
        )
        self._started = False
        """Whether an `iter()` has started this epoch, so that the next one starts another epoch."""
        self._resumed = False
        """Whether a state was loaded or inherited, and neither an `iter()` nor another epoch followed."""
        self._is_set = False
        """Whether `set_epoch` has set the epoch of the next `iter()`."""
        self._is_used = False
        """Whether an `iter()` was started or a state was loaded before."""
        self._iteration = 0
        """Number of the current `iter()`. Counts up when the position changes, which invalidates the iterator."""

    @property
    def micro_batches(self) -> int:
        """Micro-batches per global step, over all ranks."""
        return self._micro_batches

    def _micro_batches_of(self, state: Mapping[str, Any]) -> int:
        """Returns the micro-batches per step after loading `state`: those of the state, unless the option was given."""
        saved = None if self._micro_batches_given else _saved_micro_batches(state)
        if saved is not None and not 1 <= saved <= _native.MAX_MICRO_BATCHES:
            raise UsageError(
                f"the state has micro_batches {saved}, not between 1 and {_native.MAX_MICRO_BATCHES}",
                remedy="the state is damaged; restore another one",
            )
        return self._micro_batches if saved is None else saved

    @property
    @abstractmethod
    def epoch(self) -> int:
        """The epoch, from 0."""

    @abstractmethod
    def _go_to(self, epoch: int) -> None:
        """Goes to the start of `epoch`."""

    @abstractmethod
    def _remaining(self) -> int:
        """Returns the number of batches of this rank that are left in the epoch."""

    @abstractmethod
    def _enter_process(self) -> None:
        """Opens what the parent process had opened, if this process was forked."""

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next `iter()`: all of it or, directly after `load_state_dict` of a state in that epoch,
        what is left of it, which may be nothing. A loop that starts each epoch with this call can therefore be
        resumed. The current iterator ends with an error."""
        epoch = integer("epoch", epoch)
        self._enter_process()
        if not (self._resumed and epoch == self.epoch):
            if self._resumed and self._remaining() > 0:
                logger.warning(
                    "set_epoch(%d) leaves the position in epoch %d that was loaded: do not call it after load_state_dict, "
                    "or call it with the epoch of the state",
                    epoch, self.epoch,
                )  # fmt: skip
            self._go_to(epoch)
            self._resumed = False
        self._started, self._is_set = False, True
        self._iteration += 1

    def _loaded(self) -> None:
        """Records that a state was loaded, which invalidates the current iterator."""
        self._started, self._resumed, self._is_set, self._is_used = False, True, False, True
        self._iteration += 1

    def _inherited(self) -> dict[str, Any]:
        """Returns the attributes of a copy that differ from the original. The next `iter()` of a copy, here or in
        another process, returns the rest of an epoch that has started, as after `load_state_dict`."""
        return {"_started": False, "_resumed": self._started or self._resumed}

    def _start_iteration(self) -> int:
        """Starts an `iter()` and returns its number."""
        self._enter_process()
        if self._started or (self._resumed and not self._is_set and self._remaining() == 0):
            epoch = self.epoch
            if epoch == MAX_INTEGER:
                raise OutOfRangeError(f"there is no epoch after {epoch}")
            self._go_to(epoch + 1)
        self._started, self._resumed, self._is_set, self._is_used = True, False, False, True
        self._iteration += 1
        return self._iteration

    def _check_iteration(self, iteration: int) -> None:
        """Raises an error if `iteration` is not the current `iter()`."""
        if iteration != self._iteration:
            raise UsageError(
                "this iterator is no longer valid: another iter() was started, a state was loaded or the epoch was set",
                remedy="use one iterator at a time, or create a second loader or sampler",
            )


def given(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options among the keywords that a caller passed. `None` is the same as leaving an option out."""
    return {name: plain(name, keywords[name]) for name in OPTIONS if keywords.get(name) is not None}


def _saved_micro_batches(state: Mapping[str, Any]) -> int | None:
    """Finds the micro-batches per step in a nested state. Returns None if this is not a state."""
    found = state.get("micro_batches")
    if not isinstance(found, bool):
        try:
            return operator.index(found)  # type: ignore[arg-type]  # checkpoints may make scalars of numpy of integers
        except TypeError:
            pass
    inner = (_saved_micro_batches(value) for value in state.values() if isinstance(value, Mapping))
    return next((number for number in inner if number is not None), None)
