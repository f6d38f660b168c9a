"""Imports Ray, which is optional."""

from __future__ import annotations

import importlib
from types import ModuleType


def import_ray(module: str = "ray") -> ModuleType:
    """The module `ray` or a module of it.

    Modules of Ray are imported by name: type checkers that follow them take half a minute.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        missing = error.name or "ray"
        raise ImportError(
            f"dsconvert.ray needs the package {missing}, which cannot be imported: {error}; "
            "install it with `pip install 'dsconvert[ray]'`",
            name=missing,
        ) from error
