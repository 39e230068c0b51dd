"""Decides whether the compiled modules are used, before the first of them is imported: all of them, or none.

They are used when all are present and were built from the current sources. `OTTLA_PURE_PYTHON=1` disables them. The packages that hold
compiled modules import this one first.
"""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import Any, Final

from ottla.protocol.hot_modules import HOT, NATIVE, binaries, digest, record

ROOT: Final = Path(__file__).parents[2]
"""The folder that holds the package `ottla`."""
MODULES: Final = NATIVE


class _SourcesOnly:
    """Finds the source of a hot module, where Python would prefer the binary beside it."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: object = None) -> ModuleSpec | None:
        if fullname not in HOT:
            return None
        return spec_from_file_location(fullname, ROOT / f"{fullname.replace('.', '/')}.py")


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
    return "" if recorded == digest(root) else "a source has changed since: `make install` compiles it"


REASON: Final = why_not(ROOT)
IS_COMPILED: Final = not REASON
if not IS_COMPILED:
    sys.meta_path.insert(0, _SourcesOnly())


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
