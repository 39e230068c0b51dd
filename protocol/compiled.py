"""Decides whether the compiled modules are used, before the first of them is imported: all of them, or none.

They are used when all are present and were built from the current sources. `OTTLA_PURE_PYTHON=1` disables them. The packages that hold
compiled modules import this one first.
"""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import Any, Final

from ottla.protocol.hot_modules import HOT, NATIVE, SHARED, binaries, is_current, record

ROOT: Final = Path(__file__).parents[2]
"""The folder that holds the package `ottla`."""
MODULES: Final = NATIVE


class Sources:
    """Finds the source of a module where Python would prefer a binary beside it: one that is not used, or one of an earlier release, which
    compiled other modules."""

    def __init__(self, root: Path, *, is_compiled: bool) -> None:
        self._root = root
        self._of_binaries = frozenset((SHARED, *NATIVE, *(HOT if is_compiled else ())))

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: object = None) -> ModuleSpec | None:
        """See importlib.abc.MetaPathFinder."""
        if not fullname.startswith("ottla.") or fullname in self._of_binaries:
            return None
        without_suffix = f"{self._root}/{fullname.replace('.', '/')}"
        if not os.path.exists(without_suffix + EXTENSION_SUFFIXES[0]):
            return None
        return spec_from_file_location(fullname, without_suffix + ".py")


def why_not(root: Path) -> str:
    """The reason not to use the binaries below `root`; empty when they are used."""
    if os.environ.get("OTTLA_PURE_PYTHON"):
        return "OTTLA_PURE_PYTHON is set"
    if not all(os.path.exists(root / name) for name in binaries()):
        return "not compiled"
    try:
        recorded = (root / record()).read_text(encoding="ascii")
    except OSError:
        return "not compiled to the end"
    return "" if is_current(root, recorded) else "a source has changed since: `make install` compiles it"


REASON: Final = why_not(ROOT)
IS_COMPILED: Final = not REASON
sys.meta_path.insert(0, Sources(ROOT, is_compiled=IS_COMPILED))


def compiled(name: str) -> Any:
    """The Cython module of that name, or None when compiled modules are not used."""
    if not IS_COMPILED:
        return None
    try:
        return import_module(name)
    except ImportError:
        return None


def describe() -> str:
    """For people: whether the compiled modules are used, and the reason if they are not."""
    return "compiled" if IS_COMPILED else f"pure Python ({REASON})"
