"""Imports Ray, which is optional."""

from __future__ import annotations

import importlib
from types import ModuleType


def import_optional(module: str) -> ModuleType:
    """Imports a module of Ray, or one that `ray.data` needs.

    Modules are imported by name, because results of untyped modules would have to be annotated one by one.
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
