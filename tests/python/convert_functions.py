"""Functions for `dsconvert.convert`, in a module of their own: workers import them."""

import multiprocessing
import os
import pathlib
import signal
import sys
import threading
import time

import numpy as np

import dsconvert

SCHEMA = {
    "number": "uint32",
    "text": "str",
    "vector": dsconvert.array("float16", (4,)),
    "frames": dsconvert.array("int16", (None, 2), nullable=True),
    "tags": "list[str]?",
}


def record(item):
    if item % 7 == 3:
        return None
    frames = None if item % 5 == 0 else np.full((item % 5, 2), item % 100, np.int16)
    return {
        "number": item,
        "text": f"item {item}",
        "vector": np.arange(4, dtype=np.float16) + item,
        "frames": frames,
        "tags": [f"t{at}" for at in range(item % 3)],
    }


def records(items):
    return [record(item) for item in items]


def rejects(item):
    if item % 10 == 4:
        raise ValueError(f"item {item} is bad")
    if item % 10 == 5:
        return dsconvert.Reject("not wanted")
    if item % 10 == 6:
        return {**record_of(item), "vector": np.zeros(4, np.float32)}
    if item % 10 == 7:
        return {"number": item}
    return record_of(item)


def record_of(item):
    return record(7 * item)


def culprits(items):
    """Fails for a whole batch if one item is bad."""
    if bad := [item for item in items if item in (13, 14, 40)]:
        raise RuntimeError(f"{len(bad)} bad items")
    return [record_of(item) for item in items]


def too_few(items):
    return records(items)[1:]


def prints(item):
    print("a line on stdout")
    print("a line on stderr", file=sys.stderr)
    return record_of(item)


def forks(item):
    if item == 3 and os.fork() == 0:
        # The child returns, too.
        return record_of(item)
    return record_of(item)


def dies(item):
    if item == 30 and os.environ.get("DSCONVERT_TEST_DIES"):
        os._exit(7)
    return record_of(item)


def out_of_memory(items):
    if 30 in items and os.environ.get("DSCONVERT_TEST_DIES"):
        raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")
    return [record_of(item) for item in items]


def gone(item):
    if item == 30 and os.environ.get("DSCONVERT_TEST_DIES"):
        raise FileNotFoundError("x.wav")
    return record_of(item)


def slow(item):
    time.sleep(0.02)
    return record_of(item)


def kills(item):
    """Kills the process that called `convert` at one call, counted over all processes."""
    with open(os.environ["DSCONVERT_TEST_CALLS"], "ab", buffering=0) as calls:
        calls.write(b".")
        if os.fstat(calls.fileno()).st_size >= int(os.environ["DSCONVERT_TEST_KILL_AT"]):
            worker = multiprocessing.parent_process()
            os.kill(os.getpid() if worker is None else worker.pid, signal.SIGKILL)
            threading.Event().wait()
    return record_of(item)


def once(item):
    """Different in each process, which no function should be."""
    return {**record_of(item), "text": str(os.getpid())}


def device(item):
    return {"number": item, "device": os.environ.get("CUDA_VISIBLE_DEVICES", "")}


class Scaled:
    """Has parameters, and something that is made once per worker."""

    def __init__(self, scale, log=None):
        self.scale = scale
        self.log = log

    def start(self, device):
        self._vector = np.ones(4, np.float16) * self.scale
        if self.log is not None:
            with pathlib.Path(self.log).open("a") as file:
                print(os.getpid(), file=file)

    def __call__(self, item):
        return {**record_of(item), "vector": self._vector}


LARGE = {"vector": dsconvert.array("float32", (None,))}


class Large:
    """Returns arrays of a size."""

    def __init__(self, size):
        self.size = size

    def __call__(self, item):
        return {"vector": np.full(self.size, item, np.float32)}


class Unpicklable:
    def __init__(self):
        self._file = sys.stderr

    def __call__(self, item):
        return record_of(item)
