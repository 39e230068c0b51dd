"""CRC32C: the function of the package `crc32c`, without what importing that package brings.

The package asks for its own version and has a command line, so `import crc32c` also loads importlib.metadata, zipfile, email and argparse
at every start of a broker. Its extension module is all that is needed. Where that is not found in its place, the package is imported as
usual.
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
    """The module that has the function `crc32c`. Raises ModuleNotFoundError when the package is not installed."""
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
