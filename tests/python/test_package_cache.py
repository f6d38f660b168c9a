"""The Python package: `CacheDataLoader` replays cached batches without calling the loader."""

import itertools

import pytest

import dsconvert


class CountingLoader:
    """A loader of ten batches per epoch that counts the batches it makes."""

    def __init__(self):
        self.made = 0
        self.epoch = None

    def __len__(self):
        return 10

    def __iter__(self):
        for _ in range(10):
            self.made += 1
            yield self.made

    def set_epoch(self, epoch):
        self.epoch = epoch


def test_the_last_real_batches_are_replayed():
    loader = CountingLoader()
    cached = dsconvert.CacheDataLoader(loader, num_caches=3, return_caches_after=5)
    assert len(cached) == 10 and not cached.is_replaying
    assert list(cached) == [1, 2, 3, 4, 5, 5, 3, 4, 5, 3]
    assert cached.is_replaying
    assert list(cached) == [3, 4, 5] * 3 + [3]
    assert loader.made == 5


def test_real_batches_continue_over_epochs_until_the_limit():
    loader = CountingLoader()
    cached = dsconvert.CacheDataLoader(loader, num_caches=2, return_caches_after=14)
    assert list(cached) == list(range(1, 11))
    assert list(cached)[:5] == [11, 12, 13, 14, 13]
    assert loader.made == 14


def test_it_wraps_any_loader(corpus_in):
    loader = dsconvert.Loader(corpus_in("arrow").path, batch_size=16)
    cached = dsconvert.CacheDataLoader(loader, num_caches=2, return_caches_after=3)
    cached.set_epoch(4)
    given = list(cached)
    assert len(given) == len(cached) == len(loader) and loader.epoch == 4
    assert len({id(batch) for batch in given}) == 3
    endless = iter(dsconvert.CacheDataLoader((n for n in range(3)), 1, 2))
    assert [next(endless) for _ in range(5)] == [0, 1, 1, 1, 1]
    few = dsconvert.CacheDataLoader(iter([1]), 1, 2)
    assert list(few) == [1]
    with pytest.raises(AttributeError):
        cached.nothing


def test_invalid_numbers_are_refused():
    for caches, after in [(0, 1), (3, 2), (-1, 5)]:
        with pytest.raises(dsconvert.UsageError):
            dsconvert.CacheDataLoader([], caches, after)


def test_a_data_loader_without_a_length_is_replayed_without_end():
    data = pytest.importorskip("torch.utils.data")

    class Endless(data.IterableDataset):
        def __iter__(self):
            return iter(range(100))

    cached = dsconvert.CacheDataLoader(data.DataLoader(Endless(), batch_size=2), num_caches=2, return_caches_after=4)
    batches = [batch.tolist() for batch in itertools.islice(cached, 60)]
    assert batches[:4] == [[0, 1], [2, 3], [4, 5], [6, 7]] and all(batch in batches[:4] for batch in batches[4:])
