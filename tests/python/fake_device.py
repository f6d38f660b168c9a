"""Simulated asynchronous devices, in real and in virtual time, and a simulated `DataLoader`."""

import queue
import threading
import time


class FakeDevice:
    """A device in a thread: `submit` enqueues a task that takes `seconds`, and `synchronize` waits for all tasks.

    Like a GPU, it starts a task when the previous one has ended, or when it is submitted. The thread sleeps until
    absolute times, so that late wake-ups do not accumulate.
    """

    def __init__(self):
        self._queue = queue.Queue()
        self._ends = 0.0
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self):
        while True:
            submitted, seconds = self._queue.get()
            self._ends = max(self._ends, submitted) + seconds
            time.sleep(max(0.0, self._ends - time.perf_counter()))
            self._queue.task_done()

    def submit(self, seconds):
        self._queue.put((time.perf_counter(), seconds))

    def synchronize(self):
        self._queue.join()


class VirtualTime:
    """A clock that advances only when simulated work takes time, so that results are exact on any machine."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


class VirtualDevice:
    """`FakeDevice` in virtual time."""

    def __init__(self, clock):
        self._clock, self._ends = clock, 0.0

    def submit(self, seconds):
        self._ends = max(self._ends, self._clock.now) + seconds

    def synchronize(self):
        self._clock.now = max(self._clock.now, self._ends)


class VirtualWorkers:
    """A `DataLoader` in virtual time.

    Batch k is loaded by worker k mod `workers` in `load(k)` seconds, at most `prefetch` × `workers` batches ahead.
    """

    def __init__(self, clock, length, load, workers, prefetch=2):
        self._clock, self._length, self._load = clock, length, load
        self.workers, self.ahead = workers, workers * prefetch

    def __len__(self):
        return self._length

    def __iter__(self):
        free = [self._clock.now] * self.workers
        done = []

        def assign():
            batch = len(done)
            if batch < self._length:
                worker = batch % self.workers
                free[worker] = max(free[worker], self._clock.now) + self._load(batch)
                done.append(free[worker])

        for _ in range(self.ahead):
            assign()
        for batch in range(self._length):
            self._clock.now = max(self._clock.now, done[batch])
            assign()
            yield batch
