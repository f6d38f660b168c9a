"""Identity of the installed build of dsconvert."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

from .. import _native


@functools.cache
def build_id() -> str:
    """Returns the SHA-256 of the native module: equal only for the same source, dependencies, compiler and target."""
    with Path(_native.__file__).open("rb") as module:
        return hashlib.file_digest(module, "sha256").hexdigest()
