"""Ships the package to the nodes as Ray's `py_modules`."""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import UsageError

PACKAGE = "dsconvert"


@contextmanager
def shipped(ship: str | os.PathLike[str] | None) -> Iterator[dict[str, list[str]]]:
    """Yields the `runtime_env` for `ray.init` that ships `ship`: `"package"` is the installed package, anything else
    the path of a wheel. The directory in it exists until the end of the block; by then, Ray has copied it.

    A wheel is unpacked here. Ray would install it with `pip`, which resolves its dependencies on every node.
    """
    if ship is None:
        yield {}
    elif os.fspath(ship) == "package":
        yield {"py_modules": [str(Path(__file__).parents[1])]}
    else:
        with tempfile.TemporaryDirectory(prefix="dsconvert-wheel-") as folder:
            yield {"py_modules": [str(_unpacked(Path(ship), Path(folder)))]}


def _unpacked(wheel: Path, folder: Path) -> Path:
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = [name for name in archive.namelist() if name.startswith(f"{PACKAGE}/")]
            archive.extractall(folder, members)
    except (OSError, zipfile.BadZipFile) as error:
        raise UsageError(
            f"ship: {wheel} cannot be read as a wheel: {error}", remedy="name a .whl file, or 'package'"
        ) from error
    if not members:
        raise UsageError(f"ship: {wheel} has no package {PACKAGE}", remedy="name a wheel of dsconvert")
    return folder / PACKAGE
