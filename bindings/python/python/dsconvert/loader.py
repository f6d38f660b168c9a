"""Batches as arrays or tensors, made by threads in this process."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from . import _native, ranks
from .dataset import Dataset, Split, split_of
from .epochs import Epochs, State, StepTotals, as_json, given, last_policy
from .errors import UsageError
from .sampler import Bucket, Last, Oversize, Shuffle

if TYPE_CHECKING:
    from .torch_dataset import LoaderDataset

Batch = dict[str, Any]
"""A batch: names and arrays (or tensors), one row per record; lists where values have no common shape."""

Size = int | tuple[int, int]
"""A side, or height and width, in pixels."""


MAX_SAID = 10
"""So many images that cannot be decoded are told of one by one."""


class BatchInfo(NamedTuple):
    """What is known of a batch beside its arrays."""

    epoch: int
    step: int
    """Global step in the epoch."""
    micro_batch: int
    """Place among the micro-batches of the step, over all ranks."""
    rows: int
    filler_rows: int
    """How many of the rows, the last ones, hold no record."""
    tokens: int
    """Sum of the lengths of its records."""
    max_length: int
    """Length of the longest record or, when packed, piece of a document."""
    records: list[int]
    """Ordinals of its records in their split: one per row or, when packed, one per piece of a document."""
    blank: list[int]
    """Ordinals of those whose image could not be decoded (`undecodable="blank"`)."""


class Loader(Epochs):
    """Batches of one split for one rank, in order, epoch after epoch.

    `docs/reference/python.md` explains every option, and `docs/reference/batching.md` which records form which batch.
    A loader can be pickled, and continues in a forked process where it was, with its own threads. Its threads start
    with the first batch and stop when an `iter()` is done or dropped.
    """

    def __init__(
        self,
        source: str | os.PathLike[str] | Dataset | Split,
        *,
        split: str | None = None,
        # How records become batches.
        batch_size: int | None = None,
        max_tokens: int | None = None,
        max_tokens_unpadded: int | None = None,
        shuffle: Shuffle = True,
        seed: int = 0,
        bucket: Bucket | None = None,
        max_waste: float | None = None,
        first_boundary: int | None = None,
        boundary_ratio: float | None = None,
        window_steps: int | None = None,
        block_records: int | None = None,
        block_group: int | None = None,
        longest_first: bool | None = None,
        oversize: Oversize | None = None,
        last: Last | None = None,
        drop_last: bool | None = None,
        # Packed rows.
        seq_len: int | None = None,
        packing: Literal["best_fit", "concat"] | None = None,
        pack_window: int | None = None,
        # Token ids.
        pad_id: int | None = None,
        pad_side: Literal["right", "left"] | None = None,
        pad_to_multiple_of: int | None = None,
        labels_for: Literal["huggingface", "next_token"] | None = None,
        shift_labels: bool | None = None,
        stored_packing: Literal["keep", "ignore"] | None = None,
        id_dtype: Literal["int64", "int32"] | None = None,
        # Images.
        decode: bool | None = None,
        center_crop: Size | None = None,
        random_resized_crop: Size | None = None,
        crop_scale: tuple[float, float] | None = None,
        crop_ratio: tuple[float, float] | None = None,
        hflip: float | bool | None = None,
        layout: Literal["hwc", "chw"] | None = None,
        channels: Literal[1, 3] | None = None,
        undecodable: Literal["error", "blank"] | None = None,
        # What a batch has.
        fields: Sequence[str] | None = None,
        as_torch: bool = False,
        pin_memory: bool = False,
        # Threads and ranks.
        num_threads: int | None = None,
        prefetch: int | None = None,
        micro_batches: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        replication: int = 1,
    ) -> None:
        super().__init__(ranks.layout(rank, world_size, replication), micro_batches)
        self._split = split_of(source, split)
        if self._split.transform is not None:
            raise UsageError(
                "transform does not apply: a Loader makes batches of stored records and calls no transform of the dataset",
                remedy="pass split.with_transform(None), or use a DataLoader over the split",
            )
        self._options = given(
            batch_size=batch_size,
            max_tokens=max_tokens,
            max_tokens_unpadded=max_tokens_unpadded,
            shuffle=shuffle,
            seed=seed,
            bucket=bucket,
            max_waste=max_waste,
            first_boundary=first_boundary,
            boundary_ratio=boundary_ratio,
            window_steps=window_steps,
            block_records=block_records,
            block_group=block_group,
            longest_first=longest_first,
            oversize=oversize,
            last=last_policy(last, drop_last),
            seq_len=seq_len,
            packing=packing,
            pack_window=pack_window,
            pad_id=pad_id,
            pad_side=pad_side,
            pad_to_multiple_of=pad_to_multiple_of,
            labels_for=labels_for,
            shift_labels=shift_labels,
            stored_packing=stored_packing,
            id_dtype=id_dtype,
            decode=decode,
            center_crop=center_crop,
            random_resized_crop=random_resized_crop,
            crop_scale=crop_scale,
            crop_ratio=crop_ratio,
            hflip=0.5 if hflip is True else float(hflip) if hflip is not None else None,
            layout=layout,
            channels=channels,
            undecodable=undecodable,
            fields=fields,
            num_threads=ranks.default_threads() if num_threads is None else num_threads,
            prefetch=prefetch,
        )
        self.as_torch = as_torch or pin_memory
        """Whether arrays are tensors."""
        self.blank_rows = 0
        """Rows of this rank that came without their image so far (`undecodable="blank"`)."""
        self._pin = _pin_memory if pin_memory and _has_accelerator() else None
        self._native: _native.Loader | None = self._open(self._micro_batches)
        self._process = os.getpid()
        self._saved: str | None = None
        """The state, while there is no native half."""

    def _open(self, micro_batches: int, state: str | None = None) -> _native.Loader:
        options = as_json({**self._options, "micro_batches": micro_batches})
        native = _native.Loader(self._split._handle(), options, self._layout, self.as_torch)
        if state is not None:
            native.restore(state)
        return native

    def _handle(self) -> _native.Loader:
        if self._native is None or self._process != os.getpid():
            saved = self._saved if self._native is None else self._native.state_of_parent()
            self._native = self._open(self._micro_batches, saved)
            self._process = os.getpid()
        return self._native

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_saved": self._handle().state(), "_native": None}

    def __len__(self) -> int:
        """Number of batches of this rank in the epoch. Exact, for packed rows, too."""
        return self._handle().len()

    @property
    def steps(self) -> int:
        """Number of global steps of the epoch."""
        return self._handle().steps()

    @property
    def split(self) -> Split:
        """The split that is read."""
        return self._split

    def __iter__(self) -> Iterator[Batch]:
        """An epoch of batches. One that cannot be made is an error in its place; the next call goes on behind it."""
        return _Batches(self)

    @property
    def epoch(self) -> int:
        """The epoch, from 0."""
        return self._handle().epoch

    def _go_to(self, epoch: int) -> None:
        self._handle().set_epoch(epoch)

    def _remaining(self) -> int:
        return self._handle().remaining()

    @property
    def last(self) -> BatchInfo | None:
        """What the last batch was."""
        last = self._handle().last()
        return None if last is None else BatchInfo(*last)

    def totals(self) -> StepTotals | None:
        """What all ranks do in the step of the last batch, for example to normalise a loss."""
        totals = self._handle().totals()
        return None if totals is None else StepTotals(*totals)

    def state_dict(self) -> State:
        """Where the loader stands: what was handed out, not what is prepared. Equal on every rank."""
        state: State = json.loads(self._handle().state())
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes to where a saved state was. Other ranks, threads and layouts may go on where it was saved.

        Unless `micro_batches` was given, it becomes that of the state: the number of ranks may change without a word.
        """
        micro_batches = self._micro_batches_of(state)
        if micro_batches == self._micro_batches:
            self._handle().restore(as_json(dict(state)))
        else:
            self._layout.share(micro_batches)
            self._native, self._process = self._open(micro_batches, as_json(dict(state))), os.getpid()
            self._micro_batches = micro_batches
        self._loaded()

    def _report(self, messages: list[str]) -> None:
        """Counts rows that came without their image, and says of the first ones why."""
        for message in messages:
            self.blank_rows += 1
            if self.blank_rows <= MAX_SAID:
                ranks.logger.warning("%s: its row is blank", message)
            elif self.blank_rows == MAX_SAID + 1:
                ranks.logger.warning("there are more such images: Loader.blank_rows counts them")

    @property
    def batch_sampler(self) -> _ToldEpoch:
        """What Lightning tells which epoch begins, as it tells samplers of a `DataLoader`."""
        return _ToldEpoch(self)

    def as_dataset(self) -> LoaderDataset:
        """The loader as a torch `IterableDataset`: for `DataLoader(…, batch_size=None)` and the like. It needs no worker
        processes, and refuses more than one."""
        from .torch_dataset import LoaderDataset

        return LoaderDataset(self)


class _ToldEpoch:
    """Takes the epoch of a trainer for a loader that is as new.

    Lightning does not load the state of a loader from a checkpoint of the end of an epoch: a new one would begin with
    epoch 0 once more. One that has begun, or whose state was loaded, knows better: for Lightning, an epoch that
    `max_steps` ended early is a whole one.
    """

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    @property
    def sampler(self) -> _ToldEpoch:
        """Lightning tells `batch_sampler.sampler`. About a `sampler` of the loader itself, it may warn for nothing."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """Lets a loader begin with `epoch`, unless it was told anything else before."""
        if self._loader._iteration == 0 and self._loader.epoch == 0:
            self._loader.set_epoch(epoch)


class _Batches(Iterator[Batch]):
    """One `iter()` of a loader."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._iteration = 0
        self._process = os.getpid()
        self._native: _native.Loader | None = None
        self._pin = loader._pin
        self._may_be_blank = loader._options.get("undecodable") == "blank"
        self._is_over = False

    def __next__(self) -> Batch:
        # Started with the first batch, so that a state which is loaded after the iterator was made still counts.
        if self._native is None:
            _check_worker()
            self._native = self._loader._handle()
            self._iteration = self._loader._begin()
        self._loader._check(self._iteration)
        if self._process != os.getpid():
            raise UsageError("this iter() was begun before the process was forked", remedy="begin another one")
        batch = self._native.next()
        if batch is None:
            self._is_over = True
            raise StopIteration
        if self._may_be_blank:
            self._loader._report(self._native.blank())
        return batch if self._pin is None else self._pin(batch)

    def __del__(self) -> None:
        is_current = self._iteration == self._loader._iteration and self._process == os.getpid()
        if self._native is not None and is_current and not self._is_over:
            # Nobody will ask for what the threads prepare. At the end of an epoch, that is the beginning of the next.
            self._native.stop()


def _check_worker() -> None:
    """Refuses to give every batch once per worker process."""
    if "torch.utils.data" not in sys.modules:
        return
    worker = sys.modules["torch.utils.data"].get_worker_info()
    if worker is not None and worker.num_workers > 1:
        raise UsageError(
            f"{worker.num_workers} workers would each give all batches",
            remedy="use num_workers=0: a Loader has threads of its own",
        )


def _has_accelerator() -> bool:
    import torch

    if torch.cuda.is_available():
        return True
    ranks.logger.warning("pin_memory does nothing: torch sees no CUDA device")
    return False


def _pin_memory(batch: Batch) -> Batch:
    import torch

    return {
        name: value.pin_memory() if isinstance(value, torch.Tensor) else value for name, value in batch.items()
    }
