"""Worker processes: each joins the output and writes whole units. Only numbers of units and counts cross the pipes."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import Error, NotCommittedError, UsageError
from .function import StopRun
from .units import Counts, Work

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

_END_SECONDS = 3.0
"""How long processes have to end before they are killed."""


def pickled(work: Work) -> bytes:
    """Returns `work` for the workers. The function is pickled by reference."""
    try:
        return pickle.dumps(work)
    except Exception as error:
        raise UsageError(
            f"fn or inputs cannot be sent to another process: {error}",
            remedy="move fn to a module, as a function or a class at its top level; or set workers=0",
        ) from error


def run(work: Work, todo: list[int], devices: list[str | None], progress: Callable[[int], None]) -> Counts:
    """Converts the units `todo` in one process for each of `devices`, and returns the outcomes.

    Raises:
        NotCommittedError: If a process died, or no item is to blame for a failure. Finished units are kept.
    """
    # Here, because the import takes a tenth of the time that the whole package does.
    import multiprocessing
    from multiprocessing.connection import Connection, wait

    content, counts = pickled(work), Counts()
    context = multiprocessing.get_context("spawn")
    waiting = list(reversed(todo))
    workers: dict[Connection, _Worker] = {}
    try:
        for device in devices[: len(todo)]:
            worker = _Worker(context, content, device)
            workers[worker.connection] = worker
        failure: Error | None = None
        while workers:
            # A process that ends closes its end of the pipe.
            for connection in wait(list(workers)):
                assert isinstance(connection, Connection)
                worker = workers[connection]
                try:
                    kind, content_of = connection.recv()
                except (EOFError, OSError, pickle.UnpicklingError):
                    workers.pop(connection)
                    failure = failure or worker.died(work)
                    continue
                if kind == "progress":
                    progress(content_of)
                    continue
                if kind == "failed":
                    failure = failure or NotCommittedError(
                        content_of, remedy="finished units are kept: run the same call again with resume=True"
                    )
                elif kind == "done":
                    counts.add(content_of)
                worker.unit = waiting.pop() if waiting and failure is None else None
                with contextlib.suppress(OSError):
                    connection.send(worker.unit)
                if worker.unit is None:
                    workers.pop(connection).join()
        if failure is not None:
            raise failure
    finally:
        # A second Ctrl-C ends the wait: then the processes are killed at once.
        try:
            for worker in workers.values():
                worker.process.terminate()
            for worker in workers.values():
                worker.process.join(_END_SECONDS)
        finally:
            for worker in workers.values():
                if worker.process.is_alive():
                    worker.process.kill()
    return counts


class _Worker:
    def __init__(self, context: Any, content: bytes, device: str | None) -> None:
        self.connection, theirs = context.Pipe()
        # The process ends when its end of this pipe is closed: with this process, however that ends.
        self._life, life = context.Pipe()
        self.unit: int | None = None
        self.process = context.Process(target=_main, args=(theirs, life, content, device), daemon=False)
        with _environment(device):
            self.process.start()
        theirs.close()
        life.close()

    def join(self) -> None:
        self.process.join()

    def died(self, work: Work) -> NotCommittedError:
        self.process.join()
        code = self.process.exitcode or 0
        how = f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
        where = "before its first unit"
        if self.unit is not None:
            numbers = work.range_of(self.unit)
            where = f"in unit {self.unit}, items {numbers.start} to {numbers.stop - 1}"
        return NotCommittedError(
            f"a worker {how} {where}",
            remedy="finished units are kept: run the same call again with resume=True; signal 9 often means too little memory",
        )


@contextlib.contextmanager
def _environment(device: str | None) -> Any:
    """Sets what a process inherits: it sees one GPU only."""
    if device is None:
        yield
        return
    before = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = device
    try:
        yield
    finally:
        if before is None:
            del os.environ["CUDA_VISIBLE_DEVICES"]
        else:
            os.environ["CUDA_VISIBLE_DEVICES"] = before


def gpus() -> list[str]:
    """Returns the GPUs that this process may use, as `CUDA_VISIBLE_DEVICES` names them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name for name in visible.split(",") if name]
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]


def _main(connection: Connection, life: Connection, content: bytes, device: str | None) -> None:
    """The main function of a worker."""
    # Ctrl-C goes to all processes of a terminal. The first one ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, args=(life,), daemon=True).start()
    try:
        work = pickle.loads(content)
        work.function.start(None if device is None else "cuda")
        writer = work.join()
    except BaseException as error:
        connection.send(("failed", f"a worker cannot start: {type(error).__name__}: {error}"))
        return
    connection.send(("ready", None))
    while (unit := connection.recv()) is not None:
        try:
            counts = work.convert(writer, unit, lambda count: connection.send(("progress", count)))
        except (StopRun, Error) as error:
            connection.send(("failed", str(error)))
        except BaseException as error:
            connection.send(("failed", f"unit {unit}: {type(error).__name__}: {error}"))
        else:
            connection.send(("done", counts))
    writer.close()


def _end_with_parent(life: Connection) -> None:
    with contextlib.suppress(EOFError, OSError):
        life.recv_bytes()
    os._exit(1)
