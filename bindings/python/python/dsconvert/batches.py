"""Iteration over the batches of a `Loader`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from . import _native, ranks
from .batch_info import Batch
from .errors import UsageError

if TYPE_CHECKING:
    from .loader import Loader


class Batches(Iterator[Batch]):
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
        # Started with the first batch, so that a state loaded after the iterator was created still takes effect.
        if self._native is None:
            _check_worker()
            self._native = self._loader._handle()
            self._iteration = self._loader._begin()
        self._loader._check(self._iteration)
        if self._process != os.getpid():
            raise UsageError("this iter() was begun before the process was forked", remedy="begin another one")
        batch: Batch | None = self._native.next()
        if batch is None:
            self._is_over = True
            raise StopIteration
        if self._may_be_blank:
            self._loader._report(self._native.blank())
        return batch if self._pin is None else self._pin(batch)

    def __del__(self) -> None:
        is_current = self._iteration == self._loader._iteration and self._process == os.getpid()
        if self._native is not None and is_current and not self._is_over:
            # Drops prepared batches that nobody will request. After a whole epoch, they are kept: they start the next
            # one.
            self._native.stop()


class ToldEpoch:
    """Applies the epoch of a trainer to a loader that has not started.

    Trainers do not restore the state of a loader from a checkpoint at the end of an epoch, so a new loader would start
    with epoch 0 again. A loader that has started, or whose state was loaded, ignores the trainer: Lightning counts an
    epoch that `max_steps` ended early as a whole one.
    """

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    @property
    def sampler(self) -> ToldEpoch:
        """Returns itself: Lightning sets the epoch of `batch_sampler.sampler`. It may warn needlessly about a `sampler`
        of the loader itself."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """Starts a loader with `epoch`, unless it has started or was given an epoch or a state before."""
        if self._loader._iteration == 0 and self._loader.epoch == 0:
            self._loader.set_epoch(epoch)


def _check_worker() -> None:
    """Raises an error in one of several worker processes, each of which would return every batch."""
    if "torch.utils.data" not in sys.modules:
        return
    worker = sys.modules["torch.utils.data"].get_worker_info()
    if worker is not None and worker.num_workers > 1:
        raise UsageError(
            f"{worker.num_workers} workers would each give all batches",
            remedy="use num_workers=0: a Loader has threads of its own",
        )


def has_accelerator() -> bool:
    """Returns whether torch can use pinned memory. Logs a warning if not."""
    import torch

    if torch.cuda.is_available():
        return True
    ranks.logger.warning("pin_memory does nothing: torch sees no CUDA device")
    return False


def pin_memory(batch: Any) -> Any:
    """Returns the batch with its tensors in pinned memory."""
    import torch

    if not isinstance(batch, dict):
        return batch
    return {
        name: value.pin_memory() if isinstance(value, torch.Tensor) else value for name, value in batch.items()
    }
