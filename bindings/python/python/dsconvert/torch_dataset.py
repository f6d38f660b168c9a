"""A loader as a torch dataset, for torchdata's `StatefulDataLoader` and for trainers that wrap `DataLoader`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from torch.utils.data import IterableDataset

from .batch_info import Batch
from .epochs import State
from .errors import UsageError
from .loader import Loader


class LoaderDataset(IterableDataset[Batch]):
    """Returns the batches of a loader. Use it with `batch_size=None`, because these are already batches."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[Batch]:
        # A `DataLoader` calls this in the constructor of the object that collates for it.
        caller = sys._getframe(1).f_locals.get("self")
        if getattr(caller, "auto_collation", False):
            raise UsageError(
                "a DataLoader of a Loader would batch its batches again",
                remedy="pass batch_size=None to the DataLoader: DataLoader(loader.as_dataset(), batch_size=None)",
            )
        return iter(self.loader)

    def __len__(self) -> int:
        return len(self.loader)

    def set_epoch(self, epoch: int) -> None:
        """Same as `Loader.set_epoch`."""
        self.loader.set_epoch(epoch)

    def state_dict(self) -> State:
        """Same as `Loader.state_dict`."""
        return self.loader.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Same as `Loader.load_state_dict`."""
        self.loader.load_state_dict(state)
