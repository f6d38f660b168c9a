"""A loader as a dataset of torch, for what wants one: torchdata's `StatefulDataLoader`, trainers that wrap `DataLoader`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch.utils.data import IterableDataset

from .batch_info import Batch
from .epochs import State
from .loader import Loader


class LoaderDataset(IterableDataset[Batch]):
    """Gives the batches of a loader. Use it with `batch_size=None`, since they are batches already."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[Batch]:
        return iter(self.loader)

    def __len__(self) -> int:
        return len(self.loader)

    def set_epoch(self, epoch: int) -> None:
        """As that of the loader."""
        self.loader.set_epoch(epoch)

    def state_dict(self) -> State:
        """As that of the loader."""
        return self.loader.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """As that of the loader."""
        self.loader.load_state_dict(state)
