"""Modules as they are without their compiled half."""

import importlib.util
import sys
from types import ModuleType
from unittest.mock import patch

from protocol.compiled import MODULES


def pure(name: str) -> ModuleType:
    """A copy of the module that calls nothing compiled, beside the one that everybody uses."""
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with patch.dict(sys.modules, dict.fromkeys(MODULES)):
        spec.loader.exec_module(module)
    return module
