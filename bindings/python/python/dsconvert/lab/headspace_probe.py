"""Measures how much training would gain if loading were free."""

from __future__ import annotations

import random
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from time import perf_counter
from typing import Any

from .batch_contents import elements_of, shallow_copy
from .batch_loads import is_data_loader
from ..errors import UsageError
from .headspace_report import HeadspaceReport, Stretch
from ..loader import Loader
from .loader_contents import counter_of
from .worker_prediction import current_workers, predict_workers

DEFAULT_STRETCH = 20
"""Default number of real steps in a pair of stretches."""
ASSUMED_AHEAD = 8
"""Number of batches that a loader of an unknown type is assumed to prefetch."""
MAX_SETTLING = 20
"""Maximum number of cached steps per prefetched batch that run while workers fill their queues."""


class HeadspaceProbe:
    """Replaces `loader` in a training loop, and measures what loading costs.

    ```python
    probe = dsconvert.HeadspaceProbe(loader)
    for batch in probe:
        step(batch)
    print(probe.report())
    ```

    Stretches of steps on real batches alternate with stretches on cached batches, which cost nothing to load. A pair is
    a real stretch between two halves of a cached one, so that a steady drift cancels out. The clock is read only at the
    ends of stretches, after `synchronize`, so that nothing disturbs the overlap of loading and computing inside them.
    Cached batches are chosen so that both kinds of stretches deliver the same number of padded elements.

    The loop ends after `steps` measured steps, or continues with real batches if `stop` is false. If the loader ends
    earlier, the loop ends, too, and another loop over the probe continues the measurement. Training sees some batches
    several times and others not at all: use the probe for measuring, not for a model that you keep.
    """

    def __init__(
        self,
        loader: Iterable[Any],
        *,
        steps: int = 400,
        stretch: int | None = None,
        warmup: int = 10,
        total_steps: int | None = None,
        synchronize: Callable[[], object] | None = None,
        ahead: int | None = None,
        num_caches: int = 16,
        stop: bool = True,
        seed: int = 0,
    ) -> None:
        """`steps` is the number of measured steps, half of them cached; `stretch` the number of real steps of a pair
        (default: about 20); `warmup` the number of real steps before the first pair. `total_steps` is the length of a
        training run, for the report. `synchronize` waits for the device (default: `torch.cuda.synchronize` if CUDA is
        used). `ahead` is the number of batches that the loader prefetches; it is known for `DataLoader` and `Loader`.
        `num_caches` batches are cached. `seed` varies the lengths of the stretches.

        With `torch.distributed`, create the probe with the same options on every rank. Ranks switch together.
        """
        for name, number, minimum in (
            ("steps", steps, 2), ("stretch", stretch, 2), ("warmup", warmup, 1), ("ahead", ahead, 0),
            ("num_caches", num_caches, 1), ("total_steps", total_steps, 1),
        ):
            if number is not None and number < minimum:
                raise UsageError(f"{name} is {number}: it must be at least {minimum}")
        self.loader = loader
        self._contents = counter_of(loader)
        self.stop = stop
        self._total_steps = total_steps
        self._synchronize = synchronize or _synchronize_cuda
        self._warmup = warmup
        workers = _workers_of(loader)
        found_ahead = _batches_ahead(loader) if ahead is None else ahead
        chosen = _stretch_for(loader, warmup, found_ahead, workers) if stretch is None else stretch
        if steps < 2 * chosen:
            if stretch is not None:
                raise UsageError(
                    f"steps is {steps}, but one pair of stretches needs {2 * chosen}",
                    remedy=f"pass at least steps={2 * chosen}, or a smaller stretch",
                )
            chosen = max(2, steps // 2)
        lengths = _lengths(chosen, max(1, steps // (2 * chosen)), workers, seed)
        # Other ranks may have other data, so all ranks use the schedule of rank 0.
        agreed: tuple[list[int], int] = _gathered((lengths, found_ahead))[0]
        self._lengths, self._ahead = agreed
        self._pool: deque[tuple[Any, int]] = deque(maxlen=num_caches)
        self._random = random.Random(seed)
        self._stretches: list[Stretch] = []
        self._pairs = 0
        self._steps = 0
        self._max_taken = 0
        self._epoch_length: int | None = None
        self._is_warm = False
        self._real_elements = self._cached_elements = 0
        self._padding: int | None = None
        self._recorded_elements = 0
        self._seconds = 0.0

    @property
    def is_done(self) -> bool:
        """Whether all stretches have been measured."""
        return self._pairs >= len(self._lengths)

    @property
    def pairs_done(self) -> int:
        """Number of pairs of stretches measured so far."""
        return self._pairs

    @property
    def steps_done(self) -> int:
        """Number of batches delivered, measured or not."""
        return self._steps

    def __iter__(self) -> Iterator[Any]:
        """Iterates over real and cached batches until the measurement is complete or the loader ends."""
        batches = _LoaderEpoch(iter(self.loader))
        start = perf_counter()
        try:
            try:
                yield from self._measure(batches)
            except _LoaderEnded:
                return
            finally:
                self._seconds += perf_counter() - start
            if not self.stop:
                for batch in batches.rest():
                    self._steps += 1
                    yield batch
        finally:
            self._max_taken = max(self._max_taken, batches.taken)

    def report(self, predict: bool = True) -> HeadspaceReport:
        """Returns a report of the measurement so far.

        With `predict`, this process loads some batches of a `DataLoader` or `Loader`, and `dsconvert simulate` predicts
        the step time with other numbers of workers.
        """
        if self._pairs == 0:
            raise self._nothing_measured()
        return HeadspaceReport.of(
            self._stretches,
            planned_pairs=len(self._lengths),
            total_steps=self._total_steps,
            seconds=self._seconds,
            padding_share=None if self._padding is None else self._padding / max(1, self._recorded_elements),
            predict=(lambda step_ms: predict_workers(self.loader, step_ms)) if predict else None,
            workers_in_use=current_workers(self.loader),
        )

    def _nothing_measured(self) -> UsageError:
        if self._steps == 0:
            return UsageError(
                "headspace measured nothing: the loader returned no batch, or the probe was not iterated",
                remedy="run the training loop over the probe before report()",
            )
        needed = self._settling + self._needed_for_pair(self._lengths[0])
        length = "" if self._epoch_length is None else f" of {self._epoch_length}"
        return UsageError(
            f"headspace measured no pair of stretches: one pair needs {needed} batches in one epoch after a warm-up of "
            f"{self._warmup}, but the loop took {self._max_taken}{length}",
            remedy="use a longer loader, do not leave the loop early, or pass a smaller stretch or warmup",
        )

    def _needed_for_pair(self, length: int) -> int:
        """Returns the number of batches that the loader must return for one pair of stretches, without those that
        settle the loader at the start of the epoch."""
        return self._ahead + self._settling + length + 1

    @property
    def _settling(self) -> int:
        """Number of real steps after which the queue of the loader has reached a steady state."""
        return self._ahead + 2

    # The clock starts when a batch has been taken and the device is idle. It stops when the batch after the stretch has
    # been taken and the device is idle again. A stretch therefore has as many calls of `next()` as steps, and each call
    # overlaps the queued steps before it. With the first call inside and the last one outside, every stretch would
    # include one wait that overlaps nothing.

    def _measure(self, batches: _LoaderEpoch) -> Iterator[Any]:
        if not self._is_warm:
            yield from self._unmeasured(batches, self._warmup)
            self._is_warm = True
        if self.is_done or not self._has_enough(batches, self._settling):
            return
        # Workers start with the epoch. The cached stretch starts once their queues are full.
        yield from self._unmeasured(batches, self._settling)
        yield from self._settle_cached(2 * self._ahead)
        while not self.is_done and self._has_enough(batches):
            length = self._lengths[self._pairs]
            half = length // 2
            before = self._choose(half, self._mean_elements() * half)
            first = yield from self._cached(before)
            # Takes the batches that workers prepared during the cached stretch, which would be a head start.
            for _ in range(self._ahead):
                self._record(batches.take())
            yield from self._unmeasured(batches, self._settling)
            real = yield from self._real(batches, length)
            first_step_s, real_step_s = first.seconds / first.steps, real.seconds / real.steps
            ratio = real_step_s / max(first_step_s, 1e-9)
            settling = _gathered(min(MAX_SETTLING, max(1.0, ratio)) * self._ahead)[0]
            yield from self._settle_cached(round(settling))
            # Uses the totals of all pairs so far, so that the next pair compensates for the difference of one pair.
            missing = self._real_elements + real.elements - self._cached_elements - first.elements
            second = yield from self._cached(self._choose(length - half, missing))
            self._real_elements += real.elements
            self._cached_elements += first.elements + second.elements
            self._stretches += [first, real, second]
            self._pairs += 1

    def _has_enough(self, batches: _LoaderEpoch, more: int = 0) -> bool:
        """Returns whether the epoch has `more` batches plus those for another pair on every rank. An unknown length
        counts as enough."""
        left = None
        try:
            self._epoch_length = len(self.loader)  # type: ignore[arg-type]
            left = self._epoch_length - batches.taken
        except TypeError:  # no length, or a DataLoader over a dataset without one
            pass
        needed = more + self._needed_for_pair(self._lengths[self._pairs])
        return all(_gathered(left is None or left >= needed))

    def _unmeasured(self, batches: _LoaderEpoch, steps: int) -> Iterator[Any]:
        for _ in range(steps):
            batch = batches.take()
            self._record(batch)
            self._steps += 1
            yield shallow_copy(batch)

    def _settle_cached(self, steps: int) -> Iterator[Any]:
        """Yields cached batches that are not measured, while workers fill their queues."""
        for batch, _ in self._choose(steps, self._mean_elements() * steps):
            self._steps += 1
            yield shallow_copy(batch)

    def _cached(self, chosen: Sequence[tuple[Any, int]]) -> Generator[Any, None, Stretch]:
        stretch = Stretch(False, self._pairs, self._steps, len(chosen), sum(elements for _, elements in chosen))
        self._synchronize()
        start = perf_counter()
        for batch, _ in chosen:
            self._steps += 1
            yield shallow_copy(batch)
        self._synchronize()
        return stretch._replace(seconds=perf_counter() - start)

    def _real(self, batches: _LoaderEpoch, steps: int) -> Generator[Any, None, Stretch]:
        batch = batches.take()
        elements, waited, first_step = 0, 0.0, self._steps
        self._synchronize()
        start = perf_counter()
        for _ in range(steps):
            elements += elements_of(batch)
            self._steps += 1
            yield shallow_copy(batch)
            before = perf_counter()
            batch = batches.take()
            waited += perf_counter() - before
        self._synchronize()
        seconds = perf_counter() - start
        self._record(batch)
        return Stretch(True, self._pairs, first_step, steps, elements, seconds, waited)

    def _record(self, batch: Any) -> None:
        contents = self._contents(batch)
        self._pool.append((_out_of_shared_memory(batch), contents.elements))
        if contents.padding is not None:
            self._padding = (self._padding or 0) + contents.padding
            self._recorded_elements += contents.elements

    def _mean_elements(self) -> float:
        return sum(elements for _, elements in self._pool) / max(1, len(self._pool))

    def _choose(self, count: int, target: float) -> list[tuple[Any, int]]:
        pool = list(self._pool)
        chosen = choose(self._random, [elements for _, elements in pool], count, target)
        return [pool[i] for i in chosen]


def headspace(
    loader: Iterable[Any],
    step: Callable[[Any], object],
    *,
    steps: int = 400,
    stretch: int | None = None,
    warmup: int = 10,
    total_steps: int | None = None,
    synchronize: Callable[[], object] | None = None,
    ahead: int | None = None,
    num_caches: int = 16,
    seed: int = 0,
    predict: bool = True,
) -> HeadspaceReport:
    """Measures how much training would gain if loading were free: calls `step` with batches of `loader`, epoch after
    epoch, until `steps` steps are measured, and returns a report.

    `HeadspaceProbe` explains the method and the options, and does the same in your own loop.
    """
    probe = HeadspaceProbe(
        loader,
        steps=steps,
        stretch=stretch,
        warmup=warmup,
        total_steps=total_steps,
        synchronize=synchronize,
        ahead=ahead,
        num_caches=num_caches,
        seed=seed,
    )
    while not probe.is_done:
        pairs = probe.pairs_done
        for batch in probe:
            try:
                step(batch)
            except Exception as error:
                error.add_note(f"raised by step, in step {probe.steps_done} of headspace")
                raise
        if probe.pairs_done == pairs:
            # Another epoch would be just as short. Without any pair, `report` raises an error.
            break
    return probe.report(predict=predict)


class _LoaderEnded(Exception):
    """The loader has no batch left for the current stretch."""


class _LoaderEpoch:
    """An epoch of the loader, with the number of batches taken from it."""

    def __init__(self, iterator: Iterator[Any]) -> None:
        self._iterator = iterator
        self.taken = 0

    def take(self) -> Any:
        try:
            batch = next(self._iterator)
        except StopIteration:
            raise _LoaderEnded from None
        except Exception as error:
            error.add_note(f"raised by the loader, after {self.taken} batches of the epoch")
            raise
        self.taken += 1
        return batch

    def rest(self) -> Iterator[Any]:
        try:
            while True:
                yield self.take()
        except _LoaderEnded:
            return


def choose(rng: random.Random, sizes: Sequence[int], count: int, target: float) -> list[int]:
    """Chooses `count` indices of `sizes`, in random order and with repeats, whose sizes add up to about `target`.

    Starts with each index about equally often, then exchanges single indices while the sum comes closer.
    """
    if not sizes:
        return []
    chosen = [i % len(sizes) for i in range(count)]
    rng.shuffle(chosen)
    missing = target - sum(sizes[i] for i in chosen)
    while chosen:
        # Finds the exchange that leaves the smallest difference.
        left, old, new = min(
            (abs(missing - (sizes[new] - sizes[old])), old, new) for old in set(chosen) for new in range(len(sizes))
        )
        if left >= abs(missing):
            break
        missing -= sizes[new] - sizes[old]
        chosen[chosen.index(old)] = new
    return chosen


def _lengths(stretch: int, pairs: int, workers: int, seed: int) -> list[int]:
    """Returns the number of real steps of each pair, varied so that they do not coincide with anything periodic.

    They are multiples of the number of workers, which deliver in bursts when they are the bottleneck.
    """
    rng = random.Random(seed)
    unit = max(2, workers)
    mean = max(1, round(stretch / unit))
    spread = mean // 4
    lengths: list[int] = []
    while len(lengths) < pairs:
        # One shorter and one longer, so that the total does not change.
        by = rng.randint(0, spread)
        two = [(mean - by) * unit, (mean + by) * unit]
        lengths += two if rng.random() < 0.5 else two[::-1]
    return lengths[:pairs] if pairs > 1 else [mean * unit]


def _workers_of(loader: Any) -> int:
    return int(loader.num_workers) if is_data_loader(loader) else 0


def _batches_ahead(loader: Any) -> int:
    """Returns the maximum number of batches that `loader` prepares in advance."""
    if is_data_loader(loader):
        return int(loader.num_workers) * int(loader.prefetch_factor or 0)
    if isinstance(loader, Loader):
        threads = int(loader._options["num_threads"])
        return int(loader._options.get("prefetch", threads + 2)) if threads else 0
    return 0 if isinstance(loader, Sequence) else ASSUMED_AHEAD


def _stretch_for(loader: Any, warmup: int, ahead: int, workers: int) -> int:
    """Returns a stretch of about `DEFAULT_STRETCH` steps, or fewer if an epoch is short."""
    unit = max(2, workers)
    stretch = -(-max(DEFAULT_STRETCH, 2 * workers) // unit) * unit
    try:
        length = len(loader)
    except TypeError:
        return stretch
    # Leaves room for stretches that are a quarter longer than the mean.
    room = int((length - warmup - 3 * ahead - 5) / 1.25)
    return max(unit, min(stretch, room // unit * unit))


def _out_of_shared_memory(value: Any) -> Any:
    """Copies tensors out of the shared memory of `DataLoader` workers, which is often small."""
    if type(value) is dict:
        return {name: _out_of_shared_memory(inner) for name, inner in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_out_of_shared_memory(inner) for inner in value)
    torch = sys.modules.get("torch")
    if torch is not None and type(value) is torch.Tensor and not value.is_cuda and value.is_shared():
        return value.clone()
    return value


def _synchronize_cuda() -> None:
    """Waits for the current CUDA device if this process uses CUDA."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()


def _gathered(value: Any) -> list[Any]:
    """Returns the `value` of all ranks, in the order of ranks."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return [value]
    values: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(values, value)
    return values
