"""Puts the floors first on the import path of Ottla's own processes, and makes the command lines of its child processes.

The floors (`broker`, `config` and so on) have names that projects of other people have, too. In a checkout they are folders beside this
package, in an installed Ottla folders in `ottla/floors`, which no other program has on its path. A process of Ottla finds them first,
whatever its working directory and PYTHONPATH are.

`python ottla/launcher.py MODULE ARGUMENTS...` runs a module of the floors, as `python -m MODULE ARGUMENTS...` would.
"""

import os
import runpy
import sys

_PACKAGE = os.path.dirname(os.path.abspath(__file__))
_INSTALLED = os.path.join(_PACKAGE, "floors")
FLOORS = _INSTALLED if os.path.isdir(_INSTALLED) else os.path.dirname(_PACKAGE)
"""The folder that holds the floors."""


def use_floors() -> None:
    """Make the floors the first place where this process looks for modules."""
    if sys.path[:1] != [FLOORS]:
        sys.path.insert(0, FLOORS)


def command(module: str, *arguments: str) -> list[str]:
    """The command line of a child process that runs a module of the floors."""
    # With -P Python does not put this file's folder on the path. The script inherits nothing by PYTHONPATH.
    return [sys.executable, "-P", os.path.join(_PACKAGE, "launcher.py"), module, *arguments]


def _run() -> None:
    use_floors()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _run()
