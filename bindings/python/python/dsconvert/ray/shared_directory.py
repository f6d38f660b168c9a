"""Proof that a process sees the output directory of the driver: a file with a random content."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

# The working directory of a conversion; the commit removes it.
WORK = ".dsconvert"
# A file system on the network may show a new file late.
TRIES = 6
TRY_SECONDS = 0.5


class Nonce(NamedTuple):
    """A file below the output directory, and what the driver wrote into it."""

    path: str
    value: str

    def problem(self) -> str | None:
        """Why this process cannot be sharing the directory; `None` when it is."""
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
            problem = f"{self.path} has another content than the driver wrote"
        return problem


@contextmanager
def nonce(out: Path) -> Iterator[Nonce]:
    """Writes a nonce below `out`, which has a plan, and removes it at the end."""
    path = out / WORK / f"ray-{secrets.token_hex(16)}"
    value = secrets.token_hex(16)
    path.write_text(value, "ascii")
    try:
        yield Nonce(str(path), value)
    finally:
        path.unlink(missing_ok=True)
