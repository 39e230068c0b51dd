"""Compiles the modules that `protocol/hot_modules.py` lists, where there are Cython and a C compiler. All of them, or none.

The one package is `ottla`; the links in its folder lead to the floors (docs/design.md). With OTTLA_PURE_PYTHON=1 a wheel for every platform
is made. OTTLA_PLATFORM names the platform of a wheel that a cross compiler makes, as `tests/cross_compiler.py` does.
"""

import gzip
import json
import os
import re
import runpy
import sysconfig
import tarfile
from hashlib import blake2b
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist

ROOT = Path(__file__).parent
LIST = runpy.run_path(str(ROOT / "ottla" / "protocol" / "hot_modules.py"))
SUFFIX = os.environ.get("SETUPTOOLS_EXT_SUFFIX") or sysconfig.get_config_var("EXT_SUFFIX")
"""The end of the names of compiled modules; setuptools takes it from there, too, for another kind of processor."""
BUILD = Path("build") / f"cython-{SUFFIX.removeprefix('.').removesuffix('.so')}"
SOURCE_URL = os.environ.get("OTTLA_SOURCE_URL", "")
"""Where the files of this version can be read, as https://forge.example/ottla/blob/v1; the publisher knows it."""
CIMPORT = re.compile(r"^\s*(?:from (\S+) )?cimport ([^#\n]+)", re.MULTILINE)
"""What a file declares to use: declarations of a module, or the module itself."""
RELATIVE = re.compile(r"(!?\[([^\]]*)\])\((?!https?:|#)([^)]*)\)")
"""A link or a picture of the README by a path in the sources; its text, and the path."""

if platform := os.environ.get("OTTLA_PLATFORM"):
    os.environ["_PYTHON_HOST_PLATFORM"] = platform  # after pip has chosen what this machine can run

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


def description() -> str:
    """The README with absolute links below SOURCE_URL. Without that address they would lead nowhere, so only their texts are left."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    if SOURCE_URL:
        return RELATIVE.sub(lambda found: f"{found[1]}({SOURCE_URL.rstrip('/')}/{found[3]})", text)
    return RELATIVE.sub(lambda found: "" if found[1].startswith("!") else found[2], text)


def extensions() -> list[Extension]:
    """One for every module. No debugging symbols: they take half of the time. Pointers that clang and GCC 14 refuse, all compilers do."""
    if os.environ.get("OTTLA_PURE_PYTHON"):
        return []
    sources = {name: f"{name.replace('.', '/')}.py" for name in LIST["HOT"]}
    sources |= {name: f"{name.replace('.', '/')}.pyx" for name in LIST["NATIVE"]}
    sources[LIST["SHARED"]] = f"{BUILD}/{LIST['SHARED'].replace('.', '/')}.c"
    return [
        Extension(name, [source], optional=True, extra_compile_args=["-g0", "-Werror=incompatible-pointer-types"])
        for name, source in sources.items()
    ]


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
        _remove([folder / LIST["record"](SUFFIX) for folder in folders])
        if _translate(self.extensions):
            super().run()
        for folder in folders:
            binaries = [folder / name for name in LIST["binaries"](SUFFIX)]
            if all(binary.exists() for binary in binaries):
                (folder / LIST["record"](SUFFIX)).write_text(LIST["digest"](ROOT), encoding="ascii")
            else:
                _remove(binaries)


def _translate(extensions: list[Extension]) -> bool:
    """Python and Cython to C, below the build folder. False without Cython.

    Only what has changed: Cython itself would judge by the times of files, among them its own, which in an environment made for a build are
    always new.
    """
    try:
        import Cython
        from Cython.Build import cythonize
    except ImportError:
        return False
    record = BUILD / "translated.json"
    before = json.loads(record.read_text(encoding="utf-8")) if record.exists() else {}
    now = {extension.name: _digest(extension, Cython.__version__) for extension in extensions}
    changed = {each.name: each for each in extensions if before.get(each.name) != now[each.name] or not _in_c(each).exists()}
    (BUILD / LIST["SHARED"].replace(".", "/")).parent.mkdir(parents=True, exist_ok=True)
    options = {"build_dir": str(BUILD), "shared_utility_qualified_name": LIST["SHARED"], "nthreads": os.cpu_count(), "force": True}
    for names, directives in ((LIST["HOT"], DIRECTIVES), (LIST["NATIVE"], {}), ((LIST["SHARED"],), {})):
        if group := [changed[name] for name in names if name in changed]:
            cythonize(group, compiler_directives=dict(directives), **options)
    record.write_text(json.dumps(now), encoding="utf-8")
    for extension in extensions:
        extension.sources = [str(_in_c(extension))]
    return True


def _in_c(extension: Extension) -> Path:
    """Where Cython leaves the translation."""
    return BUILD / Path(extension.sources[0]).with_suffix(".c")


def _digest(extension: Extension, version: str) -> str:
    """The hash of all that the translation is made of: the source, and all declarations that it uses."""
    files = [ROOT / "setup.py"]
    if extension.name != LIST["SHARED"]:
        source = ROOT / extension.sources[0]
        files += [source, *sorted(_declarations({source, source.with_suffix(".pxd")}))]
    parts = [version.encode(), *(file.read_bytes() for file in files)]
    return blake2b(b"".join(b"%d:%s" % (len(part), part) for part in parts), digest_size=16).hexdigest()


def _declarations(sources: set[Path]) -> set[Path]:
    """The declarations among these files, and those that they use, directly or not."""
    found: set[Path] = set()
    left = sources
    while left:
        file = left.pop()
        if file in found or not file.exists():
            continue
        if file.suffix == ".pxd":
            found.add(file)
        for package, names in CIMPORT.findall(file.read_text(encoding="utf-8")):
            modules = [name.split()[0] for name in names.strip(" ()").split(",") if name.strip()]
            used = [package, *(f"{package}.{name}" for name in modules)] if package else modules
            left |= {(ROOT / name.replace(".", "/")).with_suffix(".pxd") for name in used}
    return found


def _remove(files: list[Path]) -> None:
    for file in files:
        file.unlink(missing_ok=True)


class ReproducibleSdist(sdist):
    """Makes the same archive of the same files, whenever and by whomever it is made. SOURCE_DATE_EPOCH is the time of its files."""

    def make_archive(self, base_name: str, format: str, root_dir: str | None = None, base_dir: str | None = None, **_: object) -> str:
        """A .tar.gz of the folder `base_dir`; the other formats of distutils are not made."""
        if format != "gztar" or base_dir is None:
            raise SystemExit(f"setup.py makes .tar.gz archives, and no {format}")
        made_at = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
        name = f"{base_name}.tar.gz"
        with (
            open(name, "wb") as file,
            gzip.GzipFile("", "wb", fileobj=file, mtime=made_at) as zipped,
            tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            for path in sorted(Path(base_dir).rglob("*")):
                if path.is_file():
                    member = archive.gettarinfo(path)
                    member.mtime, member.mode = made_at, 0o644
                    member.uid = member.gid = 0
                    member.uname = member.gname = ""
                    with open(path, "rb") as content:
                        archive.addfile(member, content)
        return name


setup(
    packages=find_packages(include=["ottla", "ottla.*"]),
    long_description=description(),
    long_description_content_type="text/markdown",
    project_urls={"Source": SOURCE_URL} if SOURCE_URL else {},
    ext_modules=extensions(),
    cmdclass={"build_ext": BuildHotModules, "sdist": ReproducibleSdist},
)
