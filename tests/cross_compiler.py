"""Compiles wheels for aarch64 on another machine, by the C compiler of the package `ziglang`.

Python's headers are those of this machine. Debian's `pyconfig.h` for both kinds of processor differ in three facts, none of which a module
sees: two forms of inline assembly inside the interpreter, and the use of wchar_t inside its strings.
"""

import json
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

PROCESSOR = "aarch64"
GLIBC = "2.26"
"""The oldest glibc that the modules run on; preadv2 came with it."""

_FACTS = """import json, sysconfig as s
print(json.dumps([s.get_path("include"), s.get_config_var("MULTIARCH"), s.get_config_var("EXT_SUFFIX")]))"""


def compiler() -> list[str] | None:
    """The command of the C compiler for aarch64; None without the package."""
    found = find_spec("ziglang")
    if found is None or not found.submodule_search_locations:
        return None
    return [str(Path(found.submodule_search_locations[0], "zig")), "cc", "-target", f"{PROCESSOR}-linux-gnu.{GLIBC}"]


def settings(command: list[str], python: str, folder: Path) -> dict[str, str]:
    """The environment in which a wheel for this Python on aarch64 is made; the headers are copied into the folder."""
    told = subprocess.run([python, "-c", _FACTS], capture_output=True, text=True, check=True).stdout
    include, multiarch, suffix = json.loads(told)
    shutil.copytree(include, folder / "include")
    own = Path(include).parent / (multiarch or "") / Path(include).name / "pyconfig.h"
    if own.exists():  # Debian's other pyconfig.h leads to this one, by the kind of processor
        shutil.copy(own, folder / "include" / "pyconfig.h")
    return {
        "CC": " ".join(command),
        "LDSHARED": f"{' '.join(command)} -shared",
        "CFLAGS": f"-I{folder}/include",
        "OTTLA_PLATFORM": f"linux-{PROCESSOR}",
        "SETUPTOOLS_EXT_SUFFIX": suffix.replace("x86_64", PROCESSOR),
        "ZIG_GLOBAL_CACHE_DIR": str(folder / "cache"),
        "ZIG_LOCAL_CACHE_DIR": str(folder / "cache"),
    }
