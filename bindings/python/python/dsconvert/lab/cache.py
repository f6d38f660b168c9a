"""Replays cached batches, to show how fast training would be if loading took no time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from ..errors import UsageError


class CacheDataLoader:
    """Returns the batches of `loader` and, after `return_caches_after` of them, repeats the last `num_caches`.

    It is a drop-in replacement for any loader, with the same length. Compare the step time before and after the replay
    starts: the difference is the cost of loading. The first batches are real, so that training is warmed up by then.
    After that, the loader is not used any more, not even in later epochs.
    """

    def __init__(self, loader: Iterable[Any], num_caches: int = 8, return_caches_after: int = 16) -> None:
        if num_caches < 1:
            raise UsageError(f"num_caches is {num_caches}: it must be at least 1")
        if return_caches_after < num_caches:
            raise UsageError(
                f"return_caches_after is {return_caches_after}: it must be at least num_caches, which is {num_caches}"
            )
        self.loader = loader
        self.num_caches = num_caches
        self.return_caches_after = return_caches_after
        self._caches: deque[Any] = deque(maxlen=num_caches)
        self._seen = 0

    @property
    def is_replaying(self) -> bool:
        """Whether batches now come from the cache."""
        return self._seen >= self.return_caches_after

    def __repr__(self) -> str:
        return f"<dsconvert.CacheDataLoader of {self.loader!r}: {'replaying' if self.is_replaying else 'caching'}>"

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        """Iterates over as many batches as the loader has. If it has no length, the replay does not end."""
        delivered = 0
        if not self.is_replaying:
            for batch in self.loader:
                self._caches.append(batch)
                self._seen += 1
                delivered += 1
                yield batch
                if self.is_replaying:
                    # Leaving the loop drops the iterator and its threads or workers, which compete with training.
                    break
            else:
                return
        try:
            length = len(self)
        except TypeError:  # It has no length, or is a `DataLoader` of a dataset without one.
            length = None
        while length is None or delivered < length:
            yield self._caches[delivered % len(self._caches)]
            delivered += 1

    def __getattr__(self, name: str) -> Any:
        """Forwards everything else to the loader: `set_epoch`, `batch_size`, …"""
        if name == "loader":
            raise AttributeError(name)
        return getattr(self.loader, name)
