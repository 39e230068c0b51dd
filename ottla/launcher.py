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
NAMES = ("broker", "config", "controller", "protocol", "replication", "storage")
"""The floors, whose names a broker imports."""


class NameTaken(Exception):
    """A package of the program has the name of a floor, so no broker can be in its process."""

    def __init__(self, name: str, place: str) -> None:
        super().__init__(f"the package {name} in {place} has the name of one that a broker needs")


def use_floors() -> None:
    """Make the floors the first place where this process looks for modules."""
    if sys.path[:1] != [FLOORS]:
        sys.path.insert(0, FLOORS)


def share_floors() -> None:
    """Make the floors the last place where this process looks for modules: it is the process of another program.

    Raises NameTaken if that program has a package of a floor's name.
    """
    for name in NAMES:
        taken = _other_place(name)
        if taken is not None:
            raise NameTaken(name, taken)
    if FLOORS not in sys.path:
        sys.path.append(FLOORS)


def _other_place(name: str) -> str | None:
    """Where this process finds a package of that name which is no floor; None if it finds none."""
    from importlib.util import find_spec  # takes time that no command has to spare

    try:
        spec = find_spec(name)
    except ValueError:  # a module that was made by hand
        return "sys.modules"
    if spec is None:
        return None
    if spec.origin is not None:
        return None if spec.origin.startswith(FLOORS + os.sep) else spec.origin
    # A package takes precedence over a folder without __init__.py. The folder is the program's only if it has modules.
    places = [place for place in spec.submodule_search_locations or () if os.path.isdir(place) and not place.startswith(FLOORS + os.sep)]
    return next((place for place in places if any(entry.endswith(".py") for entry in os.listdir(place))), None)


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
