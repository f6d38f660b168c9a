"""Check that a process shares the output directory of the driver, by a file with random content."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

# The working directory of a conversion; the commit removes it.
WORK = ".dsconvert"
# A new file may appear late on a network file system.
TRIES = 6
TRY_SECONDS = 0.5


class Nonce(NamedTuple):
    """A file below the output directory, and the content that the driver wrote to it."""

    path: str
    value: str

    def problem(self) -> str | None:
        """Returns the reason why this process does not share the directory, or `None` if it does."""
        problem = ""
        for attempt in range(TRIES):
            if attempt:
                time.sleep(TRY_SECONDS)
            try:
                found = Path(self.path).read_text("ascii")
            except (OSError, ValueError) as error:
                problem = str(error)
                continue
            if found == self.value:
                return None
            problem = f"{self.path} does not have the content that the driver wrote"
        return problem


@contextmanager
def nonce(out: Path) -> Iterator[Nonce]:
    """Writes a nonce below `out`, which must contain a plan, and removes it at the end."""
    path = out / WORK / f"ray-{secrets.token_hex(16)}"
    value = secrets.token_hex(16)
    path.write_text(value, "ascii")
    try:
        yield Nonce(str(path), value)
    finally:
        path.unlink(missing_ok=True)
