"""The Python package: a `Loader` that is used, forked or released while its threads call transforms."""

import gc
import itertools
import subprocess
import sys
import textwrap
import time
import weakref
from pathlib import Path

import pytest

import dsconvert

TIMEOUT = 60
"""Seconds after which a program counts as blocked."""


def run(program, *args):
    """Runs a program that could block, and returns its output."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *map(str, args)], capture_output=True, text=True,
        timeout=TIMEOUT
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize(
    "end", ["", "del loader, batches", "sys.exit(0)", "loader.load_state_dict(loader.state_dict())"]
)
def test_the_interpreter_exits_while_threads_transform(text, tmp_path, end):
    program = f"""
        import sys, time
        import dsconvert
        def slow(batch):
            for _ in range(20_000): pass
            time.sleep(0.001)
            return batch
        loader = dsconvert.Loader({text.path!r}, batch_size=2, num_threads=4, batch_transform=slow)
        batches = iter(loader)
        next(batches)
        {end}
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("threads", [0, 2])
def test_a_transform_may_read_the_properties_of_its_loader(text, threads):
    program = """
        import sys, dsconvert
        def note(batch):
            loader.last, loader.totals(), repr(loader), loader._repr_html_()
            seen.append((loader.epoch, len(loader), loader.steps, loader.micro_batches, loader.state_dict() is not None))
            return batch
        seen = []
        loader = dsconvert.Loader(sys.argv[1], batch_size=32, num_threads=int(sys.argv[2]), batch_transform=note)
        for batch in loader:
            pass
        print(len(loader), set(seen[: len(loader)]) == {(0, len(loader), loader.steps, 1, True)})
    """
    assert run(program, text.path, threads) == "16 True\n"


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize(
    "call",
    ["next(iter(loader))", "loader.set_epoch(3)", "loader.load_state_dict(state)", "loader.load_state_dict(other)"],
    ids=["iter", "set_epoch", "load", "load_other"],
)
def test_a_transform_cannot_move_its_loader(text, call, threads):
    program = f"""
        import sys, dsconvert
        def move(batch):
            if dsconvert.batch_info().step == 2:
                {call}
            return batch
        loader = dsconvert.Loader(sys.argv[1], batch_size=32, num_threads=int(sys.argv[2]), batch_transform=move)
        state = loader.state_dict()
        other = dsconvert.Loader(sys.argv[1], batch_size=32, micro_batches=2).state_dict()
        batches, steps, errors = iter(loader), [], []
        while True:
            try:
                next(batches)
                steps.append(loader.last.step)
            except StopIteration:
                break
            except dsconvert.UsageError as error:
                errors.append(error.message)
        print(steps == [step for step in range(len(loader)) if step != 2], loader.epoch, *errors)
    """
    assert run(program, text.path, threads) == (
        "True 0 a transform of a Loader cannot iterate over that Loader, set its epoch or load a state\n"
    )


@pytest.mark.parametrize("threads", [0, 2])
def test_a_transform_may_use_another_loader(text, threads):
    program = """
        import sys, dsconvert
        inner = dsconvert.Loader(sys.argv[1], batch_size=32, num_threads=int(sys.argv[2]), batch_transform=lambda batch: batch)
        def both(batch):
            with lock:
                return {**batch, "other": next(iter(inner))["input_ids"]}
        import threading
        lock = threading.Lock()
        loader = dsconvert.Loader(sys.argv[1], batch_size=64, num_threads=int(sys.argv[2]), batch_transform=both)
        print(sum("other" in batch for batch in loader))
    """
    assert run(program, text.path, threads) == "8\n"


@pytest.mark.parametrize("threads", [0, 2])
def test_another_thread_may_use_the_loader_while_it_makes_a_batch(text, threads):
    # Each of the first 32 batches is made while this thread uses the loader.
    program = """
        import itertools, sys, threading, dsconvert
        calls, making, used = itertools.count(), threading.Semaphore(0), threading.Semaphore(0)
        def wait(batch):
            if next(calls) < 32:
                making.release()
                used.acquire()
            return batch
        loader = dsconvert.Loader(sys.argv[1], batch_size=8, num_threads=int(sys.argv[2]), batch_transform=wait)
        loop = threading.Thread(target=lambda: list(loader))
        loop.start()
        steps = []
        for _ in range(32):
            making.acquire()
            loader.last, loader.epoch, loader.totals(), len(loader), repr(loader)
            steps.append(loader.state_dict()["plan"]["records"]["step"])
            used.release()
        loop.join()
        print(steps == sorted(steps), loader.last.step + 1 == len(loader) > 32)
        print(steps == list(range(32)) if sys.argv[2] == "0" else len(set(steps)) > 5)
    """
    assert run(program, text.path, threads) == "True True\nTrue\n"


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("garbage", [["loader", "batches"], ["batches"]], ids=["loader", "iterator"])
def test_a_transform_may_release_the_last_reference(text, garbage, threads):
    """As a garbage collection does that happens to run in a transform."""
    program = f"""
        import gc, sys, time, dsconvert
        def release(batch):
            if dsconvert.batch_info().step == 3:
                for name in {garbage}:
                    globals().pop(name, None)
                gc.collect()
            return batch
        loader = dsconvert.Loader(sys.argv[1], batch_size=32, num_threads=int(sys.argv[2]), batch_transform=release)
        batches = iter(loader)
        start = time.monotonic()
        try:
            while time.monotonic() < start + 30:
                next(batches)
        except NameError:
            pass
        print(len(list(loader)) if "loader" in globals() else "released")
    """
    assert run(program, text.path, threads) == ("16\n" if garbage == ["batches"] else "released\n")


@pytest.mark.parametrize("threads", [0, 1])
def test_a_process_that_is_forked_while_a_thread_waits_for_a_batch_continues_there(text, threads):
    # The loop takes three batches, and waits for the fourth while the process forks.
    program = """
        import os, sys, threading, warnings, dsconvert
        warnings.simplefilter("ignore")  # about forks of processes with threads
        parent, is_taken, is_waiting = os.getpid(), threading.Semaphore(0), threading.Event()
        def wait(batch):
            if os.getpid() == parent and dsconvert.batch_info().step == 3:
                is_waiting.set()
                threading.Event().wait()
            return batch
        def step():
            return loader.state_dict()["plan"]["records"]["step"]
        def loop():
            for batch in loader:
                is_taken.release()
        loader = dsconvert.Loader(sys.argv[1], batch_size=8, num_threads=int(sys.argv[2]), batch_transform=wait)
        threading.Thread(target=loop, daemon=True).start()
        for _ in range(3):
            is_taken.acquire()
        is_waiting.wait()
        child = os.fork()
        if child == 0:
            at = step()
            next(iter(loader))
            os._exit(0 if at == 3 and (loader.last.epoch, loader.last.step) == (0, at) else 1)
        print(os.waitpid(child, 0)[1], flush=True)
        os._exit(0)
    """
    assert run(program, text.path, threads) == "0\n"


class Owner:
    """An object whose method is the transform of its loader."""

    def __init__(self, text, threads, function):
        self.loader = dsconvert.Loader(text, batch_size=32, num_threads=threads, **{function: self.change})

    def change(self, value):
        return {"owner": type(self).__name__}


def native_threads():
    names = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
    return sum(name.startswith("dsconvert-") for name in names)


@pytest.mark.parametrize("function", ["transform", "batch_transform"])
@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("batches", [0, 1, None], ids=["unused", "started", "whole"])
def test_a_loader_and_the_owner_of_its_transform_are_released(text, function, threads, batches):
    before = native_threads()
    owner = Owner(text, threads, function)
    for batch in itertools.islice(owner.loader, batches):
        assert batch["owner"] == "Owner" or set(batch["owner"]) == {"Owner"}
    released = weakref.ref(owner)
    del owner
    gc.collect()
    deadline = time.monotonic() + TIMEOUT
    while released() is not None and time.monotonic() < deadline:  # a thread may be calling the function
        time.sleep(0.01)
        gc.collect()
    assert released() is None and native_threads() <= before
