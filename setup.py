"""Compiles the modules that `protocol/hot_modules.py` lists, where there are Cython and a C compiler. All of them, or none.

The one package is `ottla`; the links in its folder lead to the floors (docs/design.md). With OTTLA_PURE_PYTHON=1 a wheel for every platform
is made. OTTLA_PLATFORM names the platform of a wheel that a cross compiler makes, as `tests/cross_compiler.py` does.
"""

import contextlib
import fcntl
import gc
import gzip
import os
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import threading
from hashlib import blake2b
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist

ROOT = Path(__file__).parent
if (ROOT / "start.py").exists():  # an archive of the sources has folders instead of links
    runpy.run_path(str(ROOT / "start.py"))["restore_links"]()
LIST = runpy.run_path(str(ROOT / "ottla" / "protocol" / "hot_modules.py"))
SUFFIX = os.environ.get("SETUPTOOLS_EXT_SUFFIX") or sysconfig.get_config_var("EXT_SUFFIX")
"""The end of the names of compiled modules; setuptools takes it from there, too, for another kind of processor."""
BUILD = Path("build") / f"cython-{SUFFIX.removeprefix('.').removesuffix('.so')}"
SOURCES = BUILD / "sources"
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
    "auto_pickle": False,  # an eighth of all code, for objects that nothing pickles
    "infer_types": True,
    "boundscheck": True,
    "initializedcheck": True,
    "nonecheck": True,
    "wraparound": False,
    "binding": False,  # methods are as those of Python's own types, for a tenth less code
}
FLAGS = [
    "-g0",  # debugging symbols take half of the time
    "-Wno-all",
    "-Werror=incompatible-pointer-types",  # clang and GCC 14 refuse them, and so do all compilers
    "-DCYTHON_CLINE_IN_TRACEBACK=0",
    '-DCYTHON_SMALL_CODE=__attribute__((cold,optimize("O0")))',  # what runs once, when a module is imported
]
OPTIMISED = "-O1"
"""Nearly as fast as -O2, for half of the compiler's time. -Og and -O0 make requests 1.4 and 2.7 times as dear. CFLAGS may name another."""
CACHED_BYTES = 256 << 20
"""The cache holds no more: about 20 builds."""


def description() -> str:
    """The README with absolute links below SOURCE_URL. Without that address they would lead nowhere, so only their texts are left."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    if SOURCE_URL:
        return RELATIVE.sub(lambda found: f"{found[1]}({SOURCE_URL.rstrip('/')}/{found[3]})", text)
    return RELATIVE.sub(lambda found: "" if found[1].startswith("!") else found[2], text)


def extensions() -> list[Extension]:
    """One for every module."""
    if os.environ.get("OTTLA_PURE_PYTHON"):
        return []
    sources = {name: f"{name.replace('.', '/')}.py" for name in LIST["HOT"]}
    sources |= {name: f"{name.replace('.', '/')}.pyx" for name in LIST["NATIVE"]}
    sources[LIST["SHARED"]] = f"{BUILD}/{LIST['SHARED'].replace('.', '/')}.c"
    flags = FLAGS if "-O" in os.environ.get("CFLAGS", "") else [*FLAGS, OPTIMISED]
    return [Extension(name, [source], optional=True, extra_compile_args=flags) for name, source in sources.items()]


class BuildHotModules(build_ext):
    """Compiles what no earlier build of any clone has compiled. Leaves the modules and the digest of their sources, or nothing new."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()
        self.force = True  # whether a module is up to date, the cache knows
        self.build_temp = str(BUILD / "objects")
        self.for_checkout = bool(self.inplace or self.editable_mode)  # setuptools forgets the first one while it compiles
        if self.for_checkout:
            self.build_lib = str(BUILD / "modules")

    def run(self) -> None:
        """Compile, and look at what came of it. One build of a checkout at a time."""
        if not self.extensions:
            return
        BUILD.mkdir(parents=True, exist_ok=True)
        with open(BUILD / ".lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.of_sources = ""
            self.cache = Cache()
            super().run()
            self.cache.shrink()
            if not self.of_sources:
                return  # without Cython; what an earlier build left is not of these sources
            if missing := self._missing():
                self.warn(f"the hot path runs as Python, because these could not be compiled: {', '.join(missing)}")
                _remove([self._binary(each) for each in self.extensions])
            else:
                Path(self.build_lib, LIST["record"](SUFFIX)).write_text(self.of_sources, encoding="ascii")

    def build_extensions(self) -> None:
        """Take modules from the cache; translate and compile the others."""
        try:
            import Cython
        except ImportError:
            self.warn("there is no Cython")
            return
        compiler = _version(self.compiler.compiler_so[0])
        others = _write_sources()
        if self.for_checkout:  # an installed Ottla has none of these files
            others += ["setup.py", *sorted(f"declarations/{file.name}" for file in (ROOT / "declarations").glob("*.py"))]
        self.of_sources = "\n".join([LIST["digest"](ROOT, others), *others])
        made_by = [sys.version, Cython.__version__, compiler, *self.compiler.compiler_so, *self.compiler.linker_so]
        self.keys = {each.name: _digest(each, made_by) for each in self.extensions}
        everything = self.extensions
        self.extensions = [each for each in everything if not self.cache.take(self.keys[each.name], self._binary(each))]
        if self.extensions:
            _translate(self.extensions)
            super().build_extensions()
        self.extensions = everything

    def build_extension(self, ext: Extension) -> None:
        """Compile one module, and keep it for later builds, also if this one does not end."""
        super().build_extension(ext)
        self.cache.keep(self.keys[ext.name], self._binary(ext))

    def copy_extensions_to_source(self) -> None:
        """Put the modules beside their sources. Those of an earlier build stay if one is missing. A running broker keeps its own."""
        if not self.of_sources or self._missing():
            return
        record = ROOT / LIST["record"](SUFFIX)
        record.unlink(missing_ok=True)
        for name in LIST["binaries"](SUFFIX):
            _copy(Path(self.build_lib) / name, ROOT / name)
        self._remove_others()
        record.write_text(self.of_sources, encoding="ascii")

    def _remove_others(self) -> None:
        """Remove binaries of modules that earlier releases compiled."""
        built = {ROOT / name for name in LIST["binaries"](SUFFIX)}
        for floor in (ROOT / "ottla").iterdir():
            for file in floor.resolve().rglob(f"*{SUFFIX}") if floor.is_dir() else ():
                if ROOT / "ottla" / floor.name / file.relative_to(floor.resolve()) not in built:
                    file.unlink()

    def _binary(self, ext: Extension) -> Path:
        return Path(self.build_lib) / f"{ext.name.replace('.', '/')}{SUFFIX}"

    def _missing(self) -> list[str]:
        return [each.name for each in self.extensions if not self._binary(each).exists()]


class Cache:
    """Compiled modules of earlier builds, for all clones of a user. A file is named by the digests of what it is made of and of itself."""

    def __init__(self) -> None:
        try:
            above = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
            self._folder = Path(above, "ottla", "compiled")
            self._folder.mkdir(parents=True, exist_ok=True)
            writable = os.access(self._folder, os.W_OK)
        except (OSError, RuntimeError):  # no home
            writable = False
        if not writable:
            self._folder = BUILD / "compiled"
            self._folder.mkdir(exist_ok=True)

    def take(self, key: str, to: Path) -> bool:
        """Copy a module. False, and no file, if there is none, or if it is not as it was when it was kept."""
        to.unlink(missing_ok=True)
        for file in self._folder.glob(f"{key}-*{SUFFIX}"):
            try:
                if file.name == f"{key}-{_hash(file.read_bytes())}{SUFFIX}":
                    _copy(file, to)
                    os.utime(file)
                    return True
                file.unlink()
            except OSError:  # another build shrinks the cache
                continue
        return False

    def keep(self, key: str, binary: Path) -> None:
        """Copy a module to here, if there is space."""
        with contextlib.suppress(OSError):
            _copy(binary, self._folder / f"{key}-{_hash(binary.read_bytes())}{SUFFIX}")

    def shrink(self) -> None:
        """Remove what was not used for the longest time."""
        with contextlib.suppress(OSError):
            left = CACHED_BYTES
            for status, file in sorted(((each.stat(), each) for each in self._folder.iterdir()), key=lambda found: -found[0].st_mtime):
                left -= status.st_size
                if left < 0:
                    file.unlink()


def _copy(file: Path, to: Path) -> None:
    """Replace a file at once: those who have mapped the old one keep it."""
    to.parent.mkdir(parents=True, exist_ok=True)
    new = to.with_name(f".{to.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        shutil.copyfile(file, new)
        os.replace(new, to)
    except OSError:
        new.unlink(missing_ok=True)
        raise


def _hash(content: bytes) -> str:
    return blake2b(content, digest_size=16).hexdigest()


def _version(compiler: str) -> str:
    """What a compiler says about itself; empty if it does not start."""
    try:
        return subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout
    except OSError:
        return ""


def _write_sources() -> list[str]:
    """All that Cython reads, in a folder of its own: the sources, and the declarations of C types, which are made of them.

    Returns the names of the other files that types were taken from.
    """
    sys.path.insert(0, str(ROOT))
    try:
        from declarations.writer import write
    finally:
        sys.path.remove(str(ROOT))
    shutil.rmtree(SOURCES, ignore_errors=True)
    return write(ROOT, SOURCES, LIST["HOT"], LIST["sources"]())


def _translate(extensions: list[Extension]) -> None:
    """Python and Cython to C, below the build folder. In one process, which imports Cython once."""
    from Cython.Build import cythonize

    (BUILD / LIST["SHARED"].replace(".", "/")).parent.mkdir(parents=True, exist_ok=True)
    options = {"shared_utility_qualified_name": LIST["SHARED"], "force": True}
    named = {extension.name: extension for extension in extensions}
    before = gc.get_threshold()
    gc.set_threshold(200_000, 20, 100)  # trees of syntax are large, and nearly nothing is garbage: a sixth of the time
    try:
        with contextlib.chdir(SOURCES):  # so that a traceback names a file as Python does
            for names, directives in ((LIST["HOT"], DIRECTIVES), (LIST["NATIVE"], {})):
                if group := [named[name] for name in names if name in named]:
                    cythonize(group, build_dir="..", compiler_directives=dict(directives), **options)
        if shared := named.get(LIST["SHARED"]):
            cythonize([shared], build_dir=str(BUILD), **options)
    finally:
        gc.set_threshold(*before)
    for extension in extensions:
        extension.sources = [str(BUILD / Path(extension.sources[0]).with_suffix(".c"))]


def _digest(extension: Extension, made_by: list[str]) -> str:
    """The hash of all that a module is made of: the source, all declarations that it uses, and what compiles it."""
    files = [ROOT / "setup.py"]
    if extension.name != LIST["SHARED"]:
        source = SOURCES / extension.sources[0]
        files += [source, *sorted(_declarations({source, source.with_suffix(".pxd")}))]
    parts = [*(part.encode() for part in (*made_by, *extension.extra_compile_args)), *(file.read_bytes() for file in files)]
    return _hash(b"".join(b"%d:%s" % (len(part), part) for part in parts))


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
            left |= {(SOURCES / name.replace(".", "/")).with_suffix(".pxd") for name in used}
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
