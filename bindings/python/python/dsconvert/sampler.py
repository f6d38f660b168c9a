"""Batch plans without a loader, for use with your own dataset and `DataLoader`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from . import _native
from .arguments import MAX_INTEGER, integer, state_as_json
from .dataset import Dataset, Split, split_of
from .epochs import Epochs, Last, State, StepTotals, given
from .errors import UsageError
from .keywords import tips_for_keywords
from .ranks import layout

Bucket: TypeAlias = Literal["none", "length", "geometric", "windows", "shape"] | Sequence[int]
"""Records that may share a batch: any (`none`); records of similar length, with boundaries computed from the lengths
(`length`), in a geometric series (`geometric`) or given as a list; adjacent records in windows that are sorted by
length (`windows`); or images of one width and height (`shape`)."""
Shuffle: TypeAlias = bool | Literal["full", "none", "block"]
Oversize: TypeAlias = Literal["error", "drop", "alone", "truncate"]


class BatchSampler(Epochs):
    """A `batch_sampler` for `DataLoader`, which returns the record ordinals of each batch.

    All options have the defaults of `dsconvert.Loader`, and the batches hold the same records. Each `iter()` is an
    epoch. The first is epoch 0, the epoch that `set_epoch` sets, or the rest of the epoch of a loaded state. Each later
    one is the next epoch. A pickled or copied sampler, and the sampler in a forked process, continue with the rest of the
    epoch.

    Args:
        source: Path of a dataset, a `Dataset`, a `Split`, or the lengths of the records of your own dataset.
        split: Name of the split to read, of a dataset. Default: `train`, or the only one.
        batch_size: Records per batch, an integer from 1. Give this, `max_tokens`, `max_tokens_unpadded` or `max_pixels`.
        max_tokens: Budget of a padded batch: rows × width of its longest record, in tokens (images: stored pixels).
        max_tokens_unpadded: Budget of a batch without padding: the sum of the lengths.
        max_patches: With a token budget: the most patches of images that the records of a batch have together. Short for
            `budget={"patches": …}`. Default: no limit.
        budget: With a token budget: a second one, `{"name": most}`: the most that the records of a batch have together of a
            column of the record index. Default: none.
        shuffle: Order of an epoch: `True` or `"full"`, `False` or `"none"`, or `"block"`, which keeps records that
            are adjacent on disk together. Default: `True`.
        seed: Integer from 0, for the order. Default: 0.
        bucket: Which records may share a batch: `"none"`: any; `"length"`: records of similar length, with boundaries
            chosen for `max_waste`; `"geometric"`; a list of boundaries; `"windows"`: sorted within windows of steps;
            `"shape"`: images of one width and height. Default: `"length"` with a budget, `"none"` with `batch_size`.
        max_waste: With `bucket="length"`: share of a batch, from 0.001 to 0.9, that padding may take. Default: 0.04.
        first_boundary: With `bucket="geometric"`: the first boundary, in tokens. Default: 16.
        boundary_ratio: With `bucket="geometric"`: ratio of a boundary to the previous one. Default: 1.1.
        window_steps: With `bucket="windows"`: steps per window. Default: 50.
        block_records: With `shuffle="block"`: records per block. Default: 256.
        block_group: With `shuffle="block"`: blocks whose records are shuffled together. Default: 64.
        longest_first: `True`: the largest batch comes first, so that an out-of-memory error occurs at once.
            Default: `False`.
        oversize: With a token budget: records that exceed it by themselves. `"error"` raises an error, `"drop"` leaves
            them out, `"alone"` makes a batch of each. If your code cuts records, pass the lengths that it cuts to as
            `source`. Default: `"error"`.
        last: Records that do not fill the last step: `"short"` makes smaller batches, `"drop"` leaves them out, `"wrap"`
            repeats records. Default: `"short"`.
        micro_batches: Micro-batches of a global step, over all ranks; a multiple of the number of ranks. Default: one per
            rank.
        rank: Number of this data-parallel process, from 0. Default: that of `torch.distributed` or of the environment.
        world_size: Number of data-parallel processes. Default: as `rank`.
        replication: Number of adjacent ranks that form one model replica and get the same batches. Default: 1.
        max_pixels: Budget of a batch of images: rows × pixels of its largest image.
        pad_to_multiple_of: Multiple that the width of a batch is rounded up to, in tokens. Default: 1.

    Raises:
        UsageError: An option is wrong or does not apply, or there is no such split.
    """

    @tips_for_keywords
    def __init__(
        self,
        source: str | os.PathLike[str] | Dataset | Split | Sequence[int] | np.ndarray[Any, Any],
        *,
        split: str | None = None,
        batch_size: int | None = None,
        max_tokens: int | None = None,
        max_tokens_unpadded: int | None = None,
        max_patches: int | None = None,
        budget: Mapping[str, int] | None = None,
        shuffle: Shuffle = True,
        seed: int = 0,
        bucket: Bucket | None = None,
        max_waste: float = 0.04,
        first_boundary: int = 16,
        boundary_ratio: float = 1.1,
        window_steps: int = 50,
        block_records: int = 256,
        block_group: int = 64,
        longest_first: bool = False,
        oversize: Oversize = "error",
        last: Last = "short",
        micro_batches: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        replication: int = 1,
        max_pixels: int | None = None,
        pad_to_multiple_of: int = 1,
    ) -> None:
        super().__init__(layout(rank, world_size, replication), micro_batches)
        if last == "pad":
            raise UsageError("last='pad' does not apply: a list of ordinals cannot have rows without a record")
        if oversize == "truncate":
            raise UsageError(
                "oversize='truncate' does not apply: a BatchSampler returns ordinals and cannot cut records",
                remedy="use 'drop' or 'alone'; or cut the records yourself and pass the lengths that remain, "
                "such as np.minimum(split.lengths(), max_tokens)",
            )
        self._source: Split | list[int]
        if isinstance(source, (str, os.PathLike, Dataset, Split)):
            self._source = split_of(source, split)
        elif split is not None:
            raise UsageError("split does not apply: the source is not a dataset")
        else:
            self._source = _lengths(source)
        self._options = given(self._passed)
        self._plan: _native.Plan | None
        self._share: list[int]
        self._plan, self._share = self._open(self._micro_batches)
        self._process = os.getpid()
        self._epoch = 0
        self._done = 0
        """Number of batches of this rank that were returned in this epoch."""

    def _open(self, micro_batches: int) -> tuple[_native.Plan, list[int]]:
        """Opens the plan, and returns it with the micro-batches of each step that belong to this rank."""
        share = self._layout.share(micro_batches)
        source = self._source._handle() if isinstance(self._source, Split) else self._source
        return _native.Plan(source, json.dumps({**self._options, "micro_batches": micro_batches})), share

    def _handle(self) -> _native.Plan:
        if self._plan is None or self._process != os.getpid():
            if self._plan is not None:
                self.__dict__.update(self._inherited())
            self._plan, self._share = self._open(self._micro_batches)
            self._process = os.getpid()
        return self._plan

    def _enter_process(self) -> None:
        self._handle()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, **self._inherited(), "_plan": None, "_process": 0}

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in self._options.items())
        source = (
            f"split {self._source.name!r} of {self._source.path!r}"
            if isinstance(self._source, Split)
            else f"{len(self._source):,} lengths"
        )
        return f"<dsconvert.BatchSampler of {source}: {options}; epoch {self._epoch}>"

    @property
    def steps(self) -> int:
        """Number of global steps per epoch."""
        return self._handle().steps

    def __len__(self) -> int:
        """Returns the number of batches of this rank in an epoch."""
        return self.steps * len(self._share)

    def __iter__(self) -> Iterator[list[int]]:
        """Iterates over an epoch of batches. A batch that fails raises an error; the next call continues after it."""
        return SampledBatches(self)

    @property
    def epoch(self) -> int:
        """The epoch, from 0."""
        return self._epoch

    @property
    def drop_last(self) -> bool:
        """Whether the last step is dropped if it is not full. Accelerate then repeats no batches."""
        return self._options.get("last") == "drop"

    def _go_to(self, epoch: int) -> None:
        self._epoch, self._done = epoch, 0

    def _remaining(self) -> int:
        return len(self) - self._done

    def counts(self) -> dict[str, int]:
        """Returns how many records the epoch has, delivers, repeats and drops, and how many exceed the budget."""
        return dict(self._handle().counts(self._epoch))

    def totals(self, step: int, epoch: int | None = None) -> StepTotals:
        """Returns the totals of all ranks in a step of the epoch."""
        epoch = self._epoch if epoch is None else integer("epoch", epoch)
        rows, tokens, padded_tokens, column = self._handle().totals(epoch, integer("step", step))
        return StepTotals(rows, tokens, padded_tokens, columns=None if column is None else dict([column]))

    def state_dict(self) -> State:
        """Returns the position of the sampler, equal on every rank and to that of a `Loader` with the same options.

        A batch counts as soon as it is returned, but `DataLoader` requests batches before training uses them. Let
        torchdata's `StatefulDataLoader` save this state: it keeps track of the batches in use.
        """
        step, index = divmod(self._done, len(self._share))
        state: State = json.loads(self._handle().state(self._epoch, step, index * self._layout.ranks))
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes to the position of a saved state. The number of ranks may differ if it was saved between global steps."""
        saved = state_as_json(state)
        plan, share = self._handle(), self._share
        micro_batches = self._micro_batches_of(state)
        if micro_batches != self._micro_batches:
            plan, share = self._open(micro_batches)
        epoch, step, turns = plan.resume(saved, self._layout)
        self._plan, self._share, self._micro_batches = plan, share, micro_batches
        self._epoch, self._done = epoch, step * len(share) + turns
        self._loaded()


class SampledBatches(Iterator[list[int]]):
    """An iterator over the batches of one epoch of a `BatchSampler`.

    It has a state of its own for `StatefulDataLoader` of torchdata, which requests batches from the iterator of a state
    before it notices that the epoch of the state is over. Such an iterator has no batches, so the requests do not start
    the next epoch.
    """

    def __init__(self, sampler: BatchSampler) -> None:
        self._sampler = sampler
        self._iteration = 0
        self._has_failed = False
        self._is_over = False

    def __next__(self) -> list[int]:
        if self._is_over:
            raise StopIteration
        sampler = self._sampler
        # Started with the first batch, so that a state loaded after the iterator was created still takes effect.
        if self._iteration == 0:
            self._iteration = sampler._start_iteration()
        sampler._check_iteration(self._iteration)
        if self._has_failed:
            sampler._done += 1
            self._has_failed = False
        if sampler._done >= len(sampler):
            self._is_over = True
            raise StopIteration
        step, index = divmod(sampler._done, len(sampler._share))
        self._has_failed = True
        batch: list[int] = sampler._handle().batch(sampler._epoch, step, sampler._share[index])
        self._has_failed = False
        sampler._done += 1
        return batch

    def state_dict(self) -> State:
        """Returns the state of the sampler."""
        return self._sampler.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes to the position of a saved state, which is the end of this iterator if the epoch is over."""
        self._sampler.load_state_dict(state)
        self._is_over = self._sampler._remaining() == 0


def _is_length(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MAX_INTEGER


def _lengths(source: Any) -> list[int]:
    """Returns the lengths of the records of a dataset of the user."""
    remedy = "pass the lengths as a list or array of integers"
    try:
        array = np.asarray(source)
    except (TypeError, ValueError, OverflowError) as error:  # lists of several lengths, tensors on a GPU
        raise UsageError(f"source is not a list of lengths: {error}", remedy=remedy) from None
    if array.ndim == 0:
        what = f"source is {type(source).__name__}, not a path, a dataset, a split or a list of lengths"
        raise UsageError(what, remedy=remedy)
    if array.dtype == np.float64 and isinstance(source, list) and all(map(_is_length, source)):
        return source  # numpy makes floats of integers of which some need 64 bits
    if array.ndim > 1:
        raise UsageError(f"source has {array.ndim} dimensions: lengths have one", remedy=remedy)
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise UsageError(
            f"source has values of type {array.dtype}: lengths are integers from 0 to {MAX_INTEGER}", remedy=remedy
        )
    if array.size and array.min() < 0:
        at = int(array.argmin())
        raise UsageError(f"source has the length {array[at]} at position {at}: lengths cannot be negative")
    return array.tolist()  # type: ignore[no-any-return]
