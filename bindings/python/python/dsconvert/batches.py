"""Iteration over the batches of a `Loader`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from . import _native, ranks
from .batch_info import Batch, named
from .errors import UsageError

if TYPE_CHECKING:
    from .loader import Loader


class Batches(Iterator[Batch]):
    """An iterator over the batches of one epoch of a loader."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._iteration = self._native_iteration = 0
        self._process = os.getpid()
        self._native: _native.Loader | None = None
        self._pin = loader._pin
        self._may_be_blank = loader._options.get("undecodable") == "blank"
        self._is_exhausted = False

    def __next__(self) -> Batch:
        # Started with the first batch, so that a state loaded after the iterator was created still takes effect.
        if self._native is None:
            _check_worker()
            self._check_process()
            self._native = self._loader._handle()
            self._iteration = self._loader._start_iteration()
            self._native_iteration = self._native.start_iteration()
        self._loader._check_iteration(self._iteration)
        self._check_process()
        prepare = self._prepare if self._may_be_blank or self._pin is not None else None
        batch: Batch | None = self._native.next(self._native_iteration, prepare)
        if batch is None:
            self._is_exhausted = True
            raise StopIteration
        return named(batch, self._loader.as_torch)  # type: ignore[no-any-return]  # a transform returns anything

    def _prepare(self, batch: Batch, blank_rows: list[str]) -> Batch:
        """Returns the batch that the loop receives. Called before the batch counts as returned, so that an exception, such
        as a lack of pinned memory, loses no batch."""
        if self._pin is not None:
            batch = self._pin(batch)
        self._loader._count_blank_rows(blank_rows)
        return batch

    def _check_process(self) -> None:
        if self._process != os.getpid():
            raise UsageError("this iterator was created before the process forked", remedy="call iter() again")

    def __del__(self) -> None:
        is_current = self._iteration == self._loader._iteration and self._process == os.getpid()
        if self._native is not None and is_current and not self._is_exhausted:
            # Drops the prepared batches, which are not needed any more. After a whole epoch they are kept, because they
            # are the first ones of the next epoch.
            self._native.stop()


class TrainerEpoch:
    """Applies the epoch that a trainer sets to a loader that has not started.

    Trainers do not restore the state of a loader from a checkpoint at the end of an epoch, so a new loader would start
    with epoch 0 again. A loader that has started, or whose state was loaded, ignores the epoch of the trainer, because
    Lightning counts an epoch that `max_steps` ended early as a whole one.
    """

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    @property
    def sampler(self) -> TrainerEpoch:
        """Returns itself, because Lightning sets the epoch of `batch_sampler.sampler`. If the loader itself had a
        `sampler`, Lightning might warn about it needlessly."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the loader, unless it has started or already has an epoch or a state. A loader whose epoch is
        over goes to the next one, so that `len` is that of the epoch to come: epochs of packed rows differ in length."""
        if not self._loader._is_used and self._loader.epoch == 0:
            self._loader.set_epoch(epoch)
        elif self._loader._started and self._loader._remaining() == 0:
            self._loader.set_epoch(self._loader.epoch + 1)


def _check_worker() -> None:
    """Raises an error in a worker process. Each would return all batches. `DataLoader` starts new ones for each epoch,
    with copies of a loader that stays where it is."""
    if "torch.utils.data" not in sys.modules:
        return
    worker = sys.modules["torch.utils.data"].get_worker_info()
    if worker is not None:
        raise UsageError(
            "a Loader cannot run in the workers of a DataLoader: each would return all batches, of the same epoch every time",
            remedy="use num_workers=0: a Loader has its own threads",
        )


def can_pin_memory() -> bool:
    """Returns whether torch can use pinned memory. Logs a warning if not."""
    import torch

    if torch.cuda.is_available():
        return True
    ranks.logger.warning("pin_memory has no effect: torch finds no CUDA device")
    return False


def pin_memory(batch: Any) -> Any:
    """Returns the batch with its tensors in pinned memory."""
    import torch

    if not isinstance(batch, dict):
        return batch
    return {
        name: value.pin_memory() if isinstance(value, torch.Tensor) else value for name, value in batch.items()
    }
