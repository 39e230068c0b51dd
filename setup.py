"""Compiles the modules that `protocol/hot_modules.py` lists, where there are Cython and a C compiler. All of them, or none."""

import os
import runpy
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent
LIST = runpy.run_path(str(ROOT / "protocol" / "hot_modules.py"))
BUILD = Path("build") / f"cython-{sysconfig.get_config_var('SOABI')}"

DIRECTIVES = {
    "language_level": 3,
    "annotation_typing": False,  # the types of C are in the .pxd
    "infer_types": True,
    "boundscheck": True,
    "initializedcheck": True,
    "nonecheck": True,
    "wraparound": False,
    "binding": True,
}


def extensions() -> list[Extension]:
    """One for every module. No debugging symbols: they take half of the time."""
    sources = {name: f"{name.replace('.', '/')}.py" for name in LIST["HOT"]}
    sources |= {name: f"{name.replace('.', '/')}.pyx" for name in LIST["NATIVE"]}
    sources[LIST["SHARED"]] = f"{BUILD}/{LIST['SHARED'].replace('.', '/')}.c"
    return [Extension(name, [source], optional=True, extra_compile_args=["-g0"]) for name, source in sources.items()]


class BuildHotModules(build_ext):
    """Leaves the digest of the sources behind when all modules are built, and no module when one is not."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()
        self.build_temp = str(BUILD / "objects")
        if self.inplace or self.editable_mode:
            self.build_lib = str(BUILD / "modules")  # stays, so that only what has changed is compiled again

    def run(self) -> None:
        """Translate to C, compile, and look at what came of it."""
        folders = {Path(self.build_lib), *([ROOT] if self.inplace or self.editable_mode else [])}
        _remove([folder / LIST["record"]() for folder in folders])
        if _translate(self.extensions):
            super().run()
        for folder in folders:
            binaries = [folder / name for name in LIST["binaries"]()]
            if all(binary.exists() for binary in binaries):
                (folder / LIST["record"]()).write_text(LIST["digest"](ROOT), encoding="ascii")
            else:
                _remove(binaries)


def _translate(extensions: list[Extension]) -> bool:
    """Python and Cython to C, below the build folder. False without Cython."""
    try:
        from Cython.Build import cythonize
    except ImportError:
        return False
    by_name = {extension.name: extension for extension in extensions}
    shared = Path(by_name[LIST["SHARED"]].sources[0])
    shared.parent.mkdir(parents=True, exist_ok=True)
    options = {"build_dir": str(BUILD), "shared_utility_qualified_name": LIST["SHARED"], "nthreads": os.cpu_count()}
    groups = ((LIST["HOT"], DIRECTIVES), (LIST["NATIVE"], {}), ((LIST["SHARED"],), {}))
    for names, directives in groups:
        group = [by_name[name] for name in names]
        for made in cythonize(group, compiler_directives=dict(directives), **options):
            by_name[made.name].sources = made.sources
            by_name[made.name].depends = made.depends
    return True


def _remove(files: list[Path]) -> None:
    for file in files:
        file.unlink(missing_ok=True)


setup(ext_modules=extensions(), cmdclass={"build_ext": BuildHotModules})
