"""The Python package: interrupts and other threads while a `Loader` waits for a batch."""

import itertools
import signal
import threading
import time

import pytest

import dsconvert

# Programs that a shell starts in the background ignore interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

TIMEOUT = 60
"""Seconds after which a batch that a test holds back is released."""


def waiting_at(call, before_end):
    """Returns a batch transform that calls `before_end` at the end of one call."""
    calls = itertools.count()

    def transform(batch):
        if next(calls) == call:
            before_end()
        return batch

    return transform


def wait_for(condition):
    while not condition():
        time.sleep(0.001)


def interrupt_after(seen, count):
    """Interrupts the main thread while it waits for the batch after the first `count`."""
    wait_for(lambda: len(seen) == count)
    time.sleep(0.2)
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)


def ids_of(batch):
    return batch["input_ids"].tolist()


@pytest.mark.parametrize("same_loader", [True, False])
def test_an_interrupt_while_a_batch_is_made_loses_no_batch(text, same_loader):
    """The batch is ready as soon as the signal is there, and must not count as returned."""
    expected = list(map(ids_of, dsconvert.Loader(text, batch_size=16, seed=4)))
    seen = []
    loader = dsconvert.Loader(
        text, batch_size=16, seed=4, num_threads=1, prefetch=1,
        batch_transform=waiting_at(3, lambda: interrupt_after(seen, 3)),
    )  # fmt: skip
    with pytest.raises(KeyboardInterrupt):
        for batch in loader:
            seen.append(ids_of(batch))
    assert len(seen) == 3
    rest = loader if same_loader else dsconvert.Loader(text, batch_size=16, seed=4)
    rest.load_state_dict(loader.state_dict())
    assert seen + list(map(ids_of, rest)) == expected


def test_an_iterator_continues_after_an_interrupt(text):
    expected = list(map(ids_of, dsconvert.Loader(text, batch_size=16, seed=4)))
    seen, interrupts = [], 0
    loader = dsconvert.Loader(
        text, batch_size=16, seed=4, num_threads=1, prefetch=1,
        batch_transform=waiting_at(3, lambda: interrupt_after(seen, 3)),
    )  # fmt: skip
    batches = iter(loader)
    while True:
        try:
            batch = next(batches, None)
        except KeyboardInterrupt:
            interrupts += 1
            continue
        if batch is None:
            break
        seen.append(ids_of(batch))
    assert (seen, interrupts) == (expected, 1)


@pytest.mark.parametrize("options", [{"batch_size": 16}, {"batch_size": 2, "seq_len": 64}])
def test_a_batch_whose_transform_is_interrupted_is_made_again(text, options):
    """Without threads, signal handlers run inside the transform."""
    options = {**options, "seed": 4, "micro_batches": 2, "num_threads": 0}
    expected = list(map(ids_of, dsconvert.Loader(text, **options)))
    loader = dsconvert.Loader(
        text, batch_transform=waiting_at(3, lambda: signal.raise_signal(signal.SIGINT)), **options
    )
    batches = iter(loader)
    seen = [ids_of(next(batches)) for _ in range(3)]
    before = loader.state_dict()
    with pytest.raises(KeyboardInterrupt):
        next(batches)
    assert loader.state_dict() == before
    seen += map(ids_of, batches)
    assert seen == expected


@pytest.mark.parametrize("exception", [KeyboardInterrupt, MemoryError])
def test_an_exception_while_a_batch_is_pinned_loses_no_batch(text, exception):
    expected = list(map(ids_of, dsconvert.Loader(text, batch_size=16, seed=4)))
    loader = dsconvert.Loader(text, batch_size=16, seed=4, num_threads=1)
    failures = []

    def pin(batch):
        if failures:
            raise failures.pop()
        return {**batch, "pinned": True}

    loader._pin = pin  # there may be no device
    batches = iter(loader)
    seen = [ids_of(next(batches)) for _ in range(3)]
    before, last = loader.state_dict(), loader.last
    failures.append(exception("deliberate"))
    with pytest.raises(exception, match="deliberate"):
        next(batches)
    assert (loader.state_dict(), loader.last) == (before, last)
    batch = next(batches)
    assert batch["pinned"] and ids_of(batch) == expected[3] and loader.state_dict() != before
    failures.append(exception("deliberate"))
    with pytest.raises(exception, match="deliberate"):
        next(batches)
    loader.load_state_dict(loader.state_dict())
    assert list(map(ids_of, loader)) == expected[4:]
    assert list(map(ids_of, loader)) != expected, "the next epoch"


def test_threads_that_share_an_iterator_get_each_batch_once(text):
    loader = dsconvert.Loader(text, batch_size=4, seed=4, num_threads=2)
    expected = list(map(ids_of, loader))
    loader.set_epoch(0)
    states, seen = [], []

    def pin(batch):
        time.sleep(0.001)  # lets the other thread run
        states.append(loader.state_dict())
        return batch

    loader._pin = pin
    batches = iter(loader)
    seen = [ids_of(next(batches))]

    def loop():
        seen.extend(map(ids_of, batches))

    threads = [threading.Thread(target=loop) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == sorted(expected)
    assert len(states) == len(expected), "each batch is pinned once"
    assert [state["plan"]["records"]["step"] for state in states] == list(range(len(expected)))


# Alone, because the batch is released after a second, before which the loader must be asked to move.
@pytest.mark.alone
@pytest.mark.parametrize("how", ["load_state_dict", "set_epoch", "iter"])
def test_a_loop_of_another_thread_takes_no_batch_of_the_next_loop(text, how):
    def make(transform):
        return dsconvert.Loader(
            text, batch_size=16, seed=4, num_threads=1, prefetch=1, batch_transform=transform
        )

    release, errors, taken = threading.Event(), [], []
    loader = make(waiting_at(3, lambda: release.wait(TIMEOUT)))

    def loop():
        try:
            for batch in loader:
                taken.append(ids_of(batch))
        except dsconvert.UsageError as error:
            errors.append(str(error))

    start = loader.state_dict()
    other = threading.Thread(target=loop)
    other.start()
    wait_for(lambda: len(taken) == 3)
    time.sleep(0.1)  # now the thread waits for the batch
    # The loader moves when its thread has ended the batch.
    threading.Timer(1, release.set).start()
    if how == "load_state_dict":
        loader.load_state_dict(start)
    elif how == "set_epoch":
        loader.set_epoch(0)
    found = list(map(ids_of, loader))
    other.join()
    plain = make(lambda batch: batch)
    expected = [list(map(ids_of, plain)) for _ in range(2)]
    assert found == expected[how == "iter"]
    assert len(errors) == 1 and "no longer valid" in errors[0]
    assert taken == expected[0][:3]
