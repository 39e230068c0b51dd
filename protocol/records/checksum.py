"""Provides the function `crc32c` of the package of the same name, without the imports of that package.

`import crc32c` looks up the package's version and has a command line, so it loads importlib.metadata, zipfile, email and argparse. That
would slow down every start of a broker. Only the extension module is needed. If it is not in its usual place, the package is imported
instead.
"""

from __future__ import annotations

from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

    from crc32c import crc32c

__all__ = ["crc32c"]


def extension() -> ModuleType:
    """The module with the function `crc32c`. Raises ModuleNotFoundError when the package is not installed."""
    package = find_spec("crc32c")
    spec = PathFinder.find_spec("_crc32c", package.submodule_search_locations) if package is not None else None
    if spec is None or spec.loader is None:
        import crc32c as whole

        return whole
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if not TYPE_CHECKING:
    crc32c = extension().crc32c
