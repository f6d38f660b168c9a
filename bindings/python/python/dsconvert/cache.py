"""Batches that cost nothing: how fast would training be if loading took no time?"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from .errors import UsageError


class CacheDataLoader:
    """Gives the batches of `loader` and, after `return_caches_after` of them, the last `num_caches` over and over.

    It takes the place of any loader, and is as long. Compare the time of a step before and after: the difference is what
    loading costs. The first batches are the true ones, so that training is warm when the replay begins; from then on
    the loader is not asked any more, in later epochs neither.
    """

    def __init__(self, loader: Iterable[Any], num_caches: int = 8, return_caches_after: int = 16) -> None:
        if num_caches < 1:
            raise UsageError(f"num_caches is {num_caches}: there must be a batch to replay")
        if return_caches_after < num_caches:
            raise UsageError(
                f"return_caches_after is {return_caches_after}: "
                f"{num_caches} batches cannot be kept before they have come"
            )
        self.loader = loader
        self.num_caches = num_caches
        self.return_caches_after = return_caches_after
        self._caches: deque[Any] = deque(maxlen=num_caches)
        self._seen = 0

    @property
    def is_replaying(self) -> bool:
        """Whether batches come from the cache by now."""
        return self._seen >= self.return_caches_after

    def __repr__(self) -> str:
        return f"<dsconvert.CacheDataLoader of {self.loader!r}: {'replaying' if self.is_replaying else 'caching'}>"

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        """An epoch of as many batches as the loader has. Replay without an end when the loader has no length."""
        given = 0
        if not self.is_replaying:
            for batch in self.loader:
                self._caches.append(batch)
                self._seen += 1
                given += 1
                yield batch
                if self.is_replaying:
                    # Leaving the loop drops the iterator, and with it threads or workers that would compete.
                    break
            else:
                return
        length = len(self) if hasattr(self.loader, "__len__") else None
        while length is None or given < length:
            yield self._caches[given % len(self._caches)]
            given += 1

    def __getattr__(self, name: str) -> Any:
        """Everything else is asked of the loader: `set_epoch`, `batch_size`, …"""
        if name == "loader":
            raise AttributeError(name)
        return getattr(self.loader, name)
