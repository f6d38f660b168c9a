"""The Python package: interrupts and other threads while a `Loader` waits for a batch."""

import itertools
import signal
import sys
import threading
import time

import pytest

import dsconvert

# Programs that a shell starts in the background ignore interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

TIMEOUT = 60
"""Seconds after which a test that waits for an event fails."""
MOVES = ("restore", "set_epoch", "start_iteration")
"""Methods of the native loader that invalidate its iterators."""


def waiting_at(call, before_end):
    """Returns a batch transform that calls `before_end` at the end of one call."""
    calls = itertools.count()

    def transform(batch):
        if next(calls) == call:
            before_end()
        return batch

    return transform


@pytest.fixture
def no_switches():
    """A thread runs until it blocks or releases the GIL. So the code after `Event.set` precedes the thread that waits."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(TIMEOUT)
    yield
    sys.setswitchinterval(before)


class Watched:
    """The native loader of a `Loader`. Calls `before` with the name of each method directly before the method."""

    def __init__(self, native, before):
        self._native, self._before = native, before

    def __getattr__(self, name):
        call = getattr(self._native, name)
        if not callable(call):
            return call

        def watched(*args):
            self._before(name)
            return call(*args)

        return watched


class HeldLoader:
    """A loader of which one batch is made only when the test allows it.

    Needs `no_switches`: a thread that sets an event then calls the next method before the thread that waits continues.
    """

    def __init__(self, text, held, **options):
        self.is_held, self.is_waiting, self.move = threading.Event(), threading.Event(), threading.Event()
        """Whether the batch is being made; whether the loop waits for it; and whether the loader is asked to move."""
        self.loader = dsconvert.Loader(
            text, batch_size=16, seed=4, **options, batch_transform=waiting_at(held, lambda: self.hold())
        )
        self.loader._native = Watched(self.loader._native, self.note)
        self.held, self.calls = held, itertools.count()

    def note(self, method):
        if method == "next" and next(self.calls) == self.held:
            self.is_waiting.set()
        elif method in MOVES and self.is_waiting.is_set():
            self.move.set()

    def hold(self):
        self.is_held.set()
        assert self.move.wait(TIMEOUT)

    def wait(self):
        """Waits until the loop waits for the batch."""
        assert self.is_held.wait(TIMEOUT) and self.is_waiting.wait(TIMEOUT)


def interrupted_loader(text, count):
    """Returns a loader that interrupts the main thread while it waits for the batch after the first `count`."""
    held = HeldLoader(text, count, num_threads=1, prefetch=1)

    def interrupt():
        assert held.is_waiting.wait(TIMEOUT)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    held.hold = interrupt
    return held.loader


def ids_of(batch):
    return batch["input_ids"].tolist()


@pytest.mark.parametrize("same_loader", [True, False])
def test_an_interrupt_while_a_batch_is_made_loses_no_batch(text, same_loader, no_switches):
    """The batch is ready as soon as the signal is there, and must not count as returned."""
    expected = list(map(ids_of, dsconvert.Loader(text, batch_size=16, seed=4)))
    seen = []
    loader = interrupted_loader(text, 3)
    with pytest.raises(KeyboardInterrupt):
        for batch in loader:
            seen.append(ids_of(batch))
    assert len(seen) == 3
    rest = loader if same_loader else dsconvert.Loader(text, batch_size=16, seed=4)
    rest.load_state_dict(loader.state_dict())
    assert seen + list(map(ids_of, rest)) == expected


def test_an_iterator_continues_after_an_interrupt(text, no_switches):
    expected = list(map(ids_of, dsconvert.Loader(text, batch_size=16, seed=4)))
    seen, interrupts = [], 0
    loader = interrupted_loader(text, 3)
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


# A thread of the loader makes the batches, or the loop itself, which then holds the lock of the native loader meanwhile.
@pytest.mark.parametrize("threads", [{"num_threads": 1, "prefetch": 1}, {"num_threads": 0}], ids=["thread", "loop"])
@pytest.mark.parametrize("how", ["load_state_dict", "other_micro_batches", "set_epoch", "iter"])
def test_a_loop_of_another_thread_takes_no_batch_of_the_next_loop(text, how, threads, no_switches):
    """The loop waits for its fourth batch, which is released when the loader is asked to move. If the move had to compete
    with the loop for a lock, it might win a round by chance."""
    options = {"batch_size": 16, "seed": 4, **threads}
    before = list(map(ids_of, itertools.islice(dsconvert.Loader(text, **options), 3)))
    later = dsconvert.Loader(text, **options, **({"micro_batches": 2} if how == "other_micro_batches" else {}))
    if how == "iter":
        later.set_epoch(1)
    start, expected = later.state_dict(), list(map(ids_of, later))
    for _ in range(10):
        held, errors, taken = HeldLoader(text, 3, **threads), [], []

        def loop():
            try:
                for batch in held.loader:
                    taken.append(ids_of(batch))
            except dsconvert.UsageError as error:
                errors.append(str(error))

        other = threading.Thread(target=loop)
        other.start()
        held.wait()
        if how == "set_epoch":
            held.loader.set_epoch(0)
        elif how != "iter":
            held.loader.load_state_dict(start)
        found = list(map(ids_of, held.loader))
        other.join()
        assert found == expected
        assert len(errors) == 1 and "no longer valid" in errors[0]
        assert taken == before


def test_a_loop_goes_on_after_a_move_that_fails(text, no_switches):
    held, taken = HeldLoader(text, 3, num_threads=1), []
    other = threading.Thread(target=lambda: taken.extend(map(ids_of, held.loader)))
    other.start()
    held.wait()
    with pytest.raises(dsconvert.UsageError, match="seed"):
        held.loader.load_state_dict(dsconvert.Loader(text, batch_size=16, seed=5).state_dict())
    other.join()
    assert taken == list(map(ids_of, dsconvert.Loader(text, batch_size=16, seed=4)))
