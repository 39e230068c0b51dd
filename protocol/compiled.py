"""The compiled half of hot modules, where this installation has one.

Modules in Cython, each the `native.pyx` beside those that use it, stand in for functions of the hot path or before them. What they do is
also written in Python: that is the authority, tests hold both equal, and it is what runs where there was no C compiler at installation,
and for all that is out of the ordinary. What they are good for:
`python -m benchmarks.kernel_floor --kinds ottla,ottla-pure-python`.
"""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any, Final, cast

MODULES: Final = ("protocol.native", "storage.native", "broker.network.native")


def compiled(name: str) -> Any:
    """The module of that name, or None. One whose source has changed since it was compiled is left alone: its functions may be others."""
    try:
        module = import_module(name)
    except ImportError:
        return None
    return None if _is_stale(Path(cast("str", module.__file__))) else module


def _is_stale(binary: Path) -> bool:
    try:
        return (binary.parent / "native.pyx").stat().st_mtime_ns > binary.stat().st_mtime_ns
    except OSError:
        return False  # an installation without sources


def leave_out() -> None:
    """Do without them in this process. To be called before anything that uses them is imported."""
    for name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment]  # what an import takes for "there is none"


def describe() -> str:
    """What a person is told of them."""
    found = [name for name in MODULES if compiled(name) is not None]
    return "compiled" if len(found) == len(MODULES) else f"compiled in part ({', '.join(found)})" if found else "pure Python"
