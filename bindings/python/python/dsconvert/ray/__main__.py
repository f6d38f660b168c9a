"""`python -m dsconvert.ray images|text …`: a conversion on a Ray cluster."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import time
from collections.abc import Sequence
from types import FrameType

from ..counts import counted
from ..errors import Error, UsageError
from .conversion import NOT_FOR_A_PLAN, convert_with
from .progress import ConversionProgress

EXIT_REJECTS = 1
EXIT_USAGE = 2
EXIT_FAILED = 3
EXIT_SIGNAL = 128
# Seconds between lines of progress if standard error is not a terminal.
LINE_SECONDS = 10.0

DESCRIPTION = """Convert images or text on a Ray cluster.

All other options are those of `dsconvert images` and `dsconvert text`; `python -m dsconvert images --help` lists them.
All nodes must see the sources and the output directory under the same paths.
"""


class Terminated(KeyboardInterrupt):
    """Raised for SIGTERM, which ends the conversion as Ctrl-C does."""


class ProgressDisplay:
    """Shows progress: one line that is updated on a terminal, otherwise a new line every ten seconds."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._next = time.monotonic() + LINE_SECONDS

    def show(self, progress: ConversionProgress) -> None:
        if self._terminal:
            sys.stderr.write(f"\r\x1b[K{progress_text(progress)}")
            sys.stderr.flush()
        elif time.monotonic() >= self._next:
            self._next += LINE_SECONDS
            print(progress_text(progress), file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self._terminal:
            sys.stderr.write("\r\x1b[K")


def progress_text(progress: ConversionProgress) -> str:
    """Formats progress as `12 of 40 units · 98.3 MB/s · 8 tasks · 35 s left`."""
    parts = [
        f"{progress.done} of {counted(progress.units, 'unit')}",
        f"{progress.bytes_per_second / 1e6:.1f} MB/s",
        counted(progress.tasks, "task"),
    ]
    if progress.seconds_left is not None:
        parts.append(f"{progress.seconds_left:.0f} s left")
    if progress.failed:
        parts.append(f"{counted(progress.failed, 'unit')} failed")
    return " · ".join(parts)


def parser() -> argparse.ArgumentParser:
    """Returns a parser for the options that `dsconvert images` and `text` lack, and for those that the commit needs."""
    result = argparse.ArgumentParser(
        prog="python -m dsconvert.ray images|text",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        usage="%(prog)s SRC… --out DIR [options]",
    )
    result.add_argument("-o", "--out", required=True, metavar="DIR", help="output directory")
    result.add_argument(
        "--resume", nargs="?", const="size", choices=["size", "verify"], metavar="CHECK",
        help="continue an unfinished conversion; --resume=verify also compares checksums",
    )  # fmt: skip
    result.add_argument("--max-rejects", default="10%", metavar="N|P%", help="commit nothing with more rejects [10%%]")
    result.add_argument("--strict", action="store_true", help="exit with status 1 if any item was rejected")
    result.add_argument("-q", "--quiet", action="store_true", help="print only errors")
    cluster = result.add_argument_group("Ray")
    cluster.add_argument("--address", help="cluster address, as for ray.init [a running one, or a new local one]")
    cluster.add_argument("--ship", metavar="package|WHEEL", help="send the installed package, or a wheel, to the nodes")
    cluster.add_argument("--num-cpus", type=int, metavar="N", help="CPUs and threads of a task [smallest node, at most 8]")
    cluster.add_argument("--memory", default="1GiB", metavar="SIZE", help="memory limit of dsconvert per task [1GiB]")
    cluster.add_argument("--reserve-memory", type=int, metavar="BYTES", help="memory that Ray reserves for a task")
    cluster.add_argument("--task-seconds", type=float, default=45.0, metavar="S", help="target duration of a task [45]")
    cluster.add_argument("--max-tasks", type=int, metavar="N", help="tasks submitted at a time [two per running one]")
    cluster.add_argument("--max-retries", type=int, default=3, metavar="N", help="limit on the retries of a task [3]")
    return result


def convert(arguments: Sequence[str]) -> int:
    """Converts as specified by `arguments`, and returns the exit status."""
    if not arguments or arguments[0] not in ("images", "text"):
        parser().print_help(sys.stdout if arguments[:1] in (["-h"], ["--help"]) else sys.stderr)
        return 0 if arguments[:1] in (["-h"], ["--help"]) else EXIT_USAGE
    kind, *rest = arguments
    # As for the command, the word after --resume is a source, and a check follows an equals sign.
    own, plan = parser().parse_known_args(["--resume=size" if word == "--resume" else word for word in rest])
    for name, remedy in NOT_FOR_A_PLAN.items():
        flag = "--" + name.replace("_", "-")
        if any(argument.split("=")[0] == flag or (flag == "--threads" and argument[:2] == "-j") for argument in plan):
            raise UsageError(f"{flag} is not supported with Ray", remedy=remedy)
    display = ProgressDisplay()
    try:
        report = convert_with(
            kind, plan, own.out,
            resume="verify" if own.resume == "verify" else own.resume is not None,
            max_rejects=own.max_rejects,
            strict=own.strict,
            num_cpus=own.num_cpus,
            memory=own.memory,
            reserve_memory=own.reserve_memory,
            task_seconds=own.task_seconds,
            max_tasks=own.max_tasks,
            max_retries=own.max_retries,
            address=own.address,
            ship=own.ship,
            progress=None if own.quiet else display.show,
        )  # fmt: skip
    finally:
        display.clear()
    if not own.quiet:
        print(report.summary, end="")
        units, tasks = counted(report.units, "unit"), counted(report.tasks, "task")
        print(f"{report.converted} of {units} converted in {tasks}; {report.seconds:.1f} s")
    return EXIT_REJECTS if own.strict and report.rejected else 0


def main() -> int:
    """Runs the command line of this process and returns its exit status."""
    logging.basicConfig(format="%(message)s")

    def terminate(number: int, frame: FrameType | None) -> None:
        raise Terminated

    signal.signal(signal.SIGTERM, terminate)
    try:
        return convert(sys.argv[1:])
    except KeyboardInterrupt as interrupt:
        notes = getattr(interrupt, "__notes__", [])
        print("\n".join(["dsconvert: interrupted", *(f"  {note}" for note in notes)]), file=sys.stderr)
        return EXIT_SIGNAL + (signal.SIGTERM if isinstance(interrupt, Terminated) else signal.SIGINT)
    except (Error, ImportError) as error:
        message, remedy = (error.message, error.remedy) if isinstance(error, Error) else (error, None)
        print(f"dsconvert: {message}" + (f"\n  {remedy}" if remedy else ""), file=sys.stderr)
        return EXIT_USAGE if isinstance(error, (UsageError, ImportError)) else EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
