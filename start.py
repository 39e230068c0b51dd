"""Starts Ottla from a clone: `make serve` and `make cluster` run this file with any Python 3, before anything is installed.

It tries the port first, then installs what a broker needs into a virtual environment, starts the broker, and compiles the hot path beside
it at low priority. A broker without compiled modules serves the same; the next start uses them. Each step is one line. `python3 start.py
compile` is the process that compiles; `make` runs it, too.
"""

from __future__ import annotations

import argparse
import fcntl
import importlib.util
import os
import re
import runpy
import shutil
import socket
import subprocess
import sys
import sysconfig
import zipfile
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parent
FLOORS = ("broker", "config", "controller", "coordination", "protocol", "replication", "storage")
OLDEST = (3, 11)
EVERY_INTERFACE = {"": "", "0.0.0.0": "", "::": ""}
DEFAULT_PORT = 9092


class CannotStart(Exception):
    """One line: the reason, and the remedy."""


def say(text: str) -> None:
    """One line about a step, on standard error: standard output belongs to the broker."""
    print(f"ottla: {text}", file=sys.stderr, flush=True)


def check_python() -> None:
    """Raises CannotStart for a Python that cannot run Ottla or make an environment."""
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < OLDEST:
        raise CannotStart(f"Python 3.11 or newer is needed, and {sys.executable} is {version}: name another one by PYTHON=")
    if not all(importlib.util.find_spec(name) for name in ("ensurepip", "venv")):
        raise CannotStart("Python's module venv is missing; on Debian or Ubuntu: apt-get install python3-venv")


def restore_links() -> None:
    """Make the links to the floors, which a copy of the sources may have lost: some archives hold a file with the link's text instead."""
    missing = [name for name in FLOORS if not (ROOT / "ottla" / name).is_dir()]
    try:
        for name in missing:
            link = ROOT / "ottla" / name
            if link.is_file() or link.is_symlink():
                link.unlink()
            link.symlink_to(f"../{name}")
    except OSError as error:
        raise CannotStart(
            f"the links in {ROOT / 'ottla'} are missing and cannot be made ({error.strerror}): copy the sources with links"
        ) from None
    if missing:
        say(f"made the links ottla/{{{','.join(missing)}}}, which this copy of the sources had lost")


def addresses(port: int | None, listeners: str | None) -> list[tuple[str, int]]:
    """The addresses that the broker will bind: those of `listeners` as in KAFKA_LISTENERS, or the port on 127.0.0.1."""
    if listeners and port is None:
        return [(host.strip("[]"), int(number)) for host, number in re.findall(r"//(\[[^\]]*\]|[^:,/]*):(\d+)", listeners)]
    return [("127.0.0.1", DEFAULT_PORT if port is None else port)]


def check_ports(wanted: list[tuple[str, int]]) -> None:
    """Raises CannotStart if an address is in use or is none, before anything is installed."""
    for host, port in wanted:
        if not 0 <= port < 65536:
            raise CannotStart(f"{port} is no port: name one from 1 to 65535, as in PORT={DEFAULT_PORT + 100}")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind((EVERY_INTERFACE.get(host, host), port))
            except OSError as error:
                remedy = f"name another port, as in PORT={port + 100 if port < 65436 else port - 100}" if port else "name another address"
                raise CannotStart(f"{host}:{port} cannot be used ({error.strerror}): {remedy}") from None


class Environment:
    """The virtual environment of the clone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.python = self.folder / "bin" / "python"

    def locked(self) -> IO[str]:
        """A file that only one process at a time has locked: two starts do not install into one environment."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = open(self.folder / ".lock", "w")
        except OSError as error:
            raise CannotStart(f"{self.folder} cannot be written ({error.strerror}): name a folder for the packages by VENV=") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another start installs into {self.folder}: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        return lock

    def install(self, extra: str) -> None:
        """Install what a broker needs, if that is not done. `extra` names optional packages of pyproject.toml. Raises CannotStart."""
        stamp = self.folder / (f".packages-{extra}" if extra else ".packages")
        wanted_state = _digest(ROOT / "pyproject.toml", ROOT / "constraints.txt")
        if _text(stamp) == wanted_state:
            return
        self.make()
        project = self._project()
        extras = project["project"]["optional-dependencies"]
        wanted = [*project["project"]["dependencies"], *extras["regex"], *(extras[extra] if extra else ())]
        backend = [each for each in project["build-system"]["requires"] if each.startswith("setuptools")]
        say(f"installing {len(wanted)} packages")
        self.pip("install", "--no-compile", "--constraint", str(ROOT / "constraints.txt"), *wanted, *backend)
        self.link()
        stamp.write_text(wanted_state, encoding="ascii")

    def make(self) -> None:
        """Make the environment with pip, if it is not there. Raises CannotStart.

        `python -m venv` installs pip by itself, which takes seven seconds; the wheel that comes with Python only has to be unpacked.
        """
        if self.python.exists():
            return
        say(f"making {self.folder} with {sys.executable}")
        wheel = _bundled_pip()
        _run(
            [sys.executable, "-m", "venv", *([] if wheel is None else ["--without-pip"]), str(self.folder)],
            "the environment cannot be made",
        )
        if wheel is not None:
            with zipfile.ZipFile(wheel) as files:
                files.extractall(self._packages())
            command = self.python.with_name("pip")
            command.write_text(f"#!{self.python}\nfrom pip._internal.cli.main import main\n\nraise SystemExit(main())\n", encoding="utf-8")
            command.chmod(0o755)

    def _packages(self) -> Path:
        """The folder from which the environment imports packages."""
        return self.folder / "lib" / "python{}.{}".format(*sys.version_info) / "site-packages"

    def _project(self) -> dict[str, Any]:
        import tomllib  # there since 3.11

        return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

    def link(self) -> None:
        """Let this environment import the checkout: an editable installation, or a link where the checkout cannot be written."""
        if os.access(ROOT, os.W_OK):
            # The modules are compiled separately.
            self.pip("install", "--no-build-isolation", "--no-deps", "--no-compile", "--editable", str(ROOT), OTTLA_PURE_PYTHON="1")
            return
        say(f"{ROOT} cannot be written: it is linked, and runs as Python")
        link = self._packages() / "ottla"
        if not link.is_symlink():
            link.symlink_to(ROOT / "ottla")

    def pip(self, *arguments: str, **variables: str) -> None:
        """Run pip for this environment. Raises CannotStart."""
        command = [str(self.python), "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
        _run(command, "the packages cannot be installed", {**os.environ, **variables})

    def is_compiled(self) -> bool:
        """Whether the compiled modules are there and fit their sources."""
        hot = runpy.run_path(str(ROOT / "protocol" / "hot_modules.py"))
        try:
            recorded = (ROOT / hot["record"]()).read_text(encoding="ascii")
        except OSError:
            return False
        return hot["is_current"](ROOT, recorded) and all((ROOT / name).exists() for name in hot["binaries"]())

    def cannot_compile(self) -> str:
        """The reason why the modules cannot be compiled here; empty if they can."""
        compiler = os.environ.get("CC", "cc").split()[0]
        if os.environ.get("OTTLA_PURE_PYTHON"):
            return "OTTLA_PURE_PYTHON is set"
        if shutil.which(compiler) is None:
            return "there is no C compiler (Debian: gcc)"
        if not Path(sysconfig.get_path("include"), "Python.h").exists():
            return "Python's headers are missing (Debian: python3-dev)"
        return "" if os.access(ROOT, os.W_OK) else "the checkout cannot be written"

    def compile(self) -> None:
        """Compile the hot path; what any clone has compiled is used again. Raises CannotStart, and then no module has changed."""
        if self.is_compiled():
            return
        reason = self.cannot_compile()
        if reason:
            say(f"the hot path runs as Python: {reason}")
            return
        log = self.folder / "compiled.log"
        say(f"compiling the hot path, which takes two to four minutes on two cores, unless it is in the cache ({log})")
        tools = self.folder / "build-tools"
        with self.locked():
            stamp = tools / ".installed"
            wanted_state = _digest(ROOT / "pyproject.toml")
            if _text(stamp) != wanted_state:
                requires = self._project()["build-system"]["requires"]
                self.pip("install", "--no-warn-conflicts", "--upgrade", "--target", str(tools), *requires)
                stamp.write_text(wanted_state, encoding="ascii")
        with log.open("w") as output:
            done = subprocess.run(
                [str(self.python), "setup.py", "--quiet", "build_ext", "--inplace"],
                cwd=ROOT, env={**os.environ, "PYTHONPATH": str(tools)}, stdout=output, stderr=output, check=False,
            )  # fmt: skip
        if done.returncode != 0 or not self.is_compiled():
            raise CannotStart(f"the hot path could not be compiled, and runs as Python; {log} has the reason")

    def compile_beside(self) -> None:
        """Begin to compile at low priority, in a session of its own, so that neither Ctrl-C nor the end of the broker stops it."""
        if self.is_compiled():
            return
        reason = self.cannot_compile()
        if reason:
            say(f"the hot path runs as Python: {reason}")
            return
        say(f"compiling the hot path beside the broker, at low priority; the next start uses it ({self.folder / 'compiled.log'})")
        command = [sys.executable, str(ROOT / "start.py"), "--venv", str(self.folder), "compile"]
        idle = ["ionice", "-c", "3"] if shutil.which("ionice") else []
        with open(self.folder / "compiling.log", "a") as output:
            subprocess.Popen(
                ["nice", "-n", "19", *idle, *command], stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )


def _digest(*files: Path) -> str:
    return blake2b(b"\0".join(file.read_bytes() for file in files), digest_size=16).hexdigest()


def _text(stamp: Path) -> str:
    """What a file holds; empty if it cannot be read."""
    try:
        return stamp.read_text(encoding="ascii")
    except OSError:
        return ""


def _bundled_pip() -> Path | None:
    """The wheel of pip that comes with Python; None if it is not where Python and Debian keep it."""
    import ensurepip

    folders = (Path(ensurepip.__file__).parent / "_bundled", Path("/usr/share/python-wheels"))
    return next((wheel for folder in folders for wheel in sorted(folder.glob("pip-*.whl"))), None)


def _run(command: list[str], failure: str, environment: dict[str, str] | None = None) -> None:
    if subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode != 0:
        raise CannotStart(f"{failure}: `{' '.join(command)}` failed")


def serve(environment: Environment, options: argparse.Namespace) -> None:
    """Install, and become the broker."""
    listeners = os.environ.get("KAFKA_LISTENERS")
    check_ports(addresses(options.port, listeners))
    with environment.locked():
        environment.install("security" if options.secure else "")
    environment.compile_beside()
    command = [str(environment.folder / "bin" / "ottla"), "serve", "--set", f"log.dirs={options.data}"]
    if options.secure:
        command += ["--secure", f"{options.data}-secure"]
    if options.port is not None:
        os.environ["KAFKA_LISTENERS"] = f"PLAINTEXT://127.0.0.1:{options.port}"
    _become(command)


def cluster(environment: Environment, options: argparse.Namespace) -> None:
    """Install, and become the supervisor of several brokers."""
    first = DEFAULT_PORT if options.port is None else options.port
    has_other_ports = any(word.partition("=")[0] == "--base-port" for word in options.arguments)
    if first and not has_other_ports:  # the supervisor chooses free ports for 0
        check_ports([("127.0.0.1", first + number) for number in range(options.brokers)])
    with environment.locked():
        environment.install("")
    environment.compile_beside()
    ports = [] if options.port is None else ["--base-port", str(options.port)]
    command = [str(environment.folder / "bin" / "ottla"), "cluster", "up", str(options.brokers), "--dir", options.dir, *ports]
    _become([*command, *options.arguments])


def _become(command: list[str]) -> None:
    program = Path(command[0])
    if not program.exists():  # a linked checkout has no command of its own
        command = [str(program.with_name("python")), "-P", "-m", "ottla", *command[1:]]
    os.execv(command[0], command)


def main() -> None:
    """Read the arguments, and do what they name."""
    # No abbreviations: an argument for `ottla cluster up` is never taken for the beginning of an option of this file.
    parser = argparse.ArgumentParser(prog="start.py", description=__doc__.partition("\n")[0], allow_abbrev=False)
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv", help="folder of the virtual environment")
    commands = parser.add_subparsers(dest="command", required=True)
    serving = commands.add_parser("serve", help="run a broker")
    serving.add_argument("--data", default="./data")
    serving.add_argument("--port", type=int)
    serving.add_argument("--secure", action="store_true")
    several = commands.add_parser("cluster", help="run several brokers; other arguments go to ottla cluster up", allow_abbrev=False)
    several.add_argument("--brokers", type=int, default=3)
    several.add_argument("--dir", default="./cluster")
    several.add_argument("--port", type=int)
    installing = commands.add_parser("install", help="install what a broker needs")
    installing.add_argument("--extra", choices=("console", "security"), default="", help="optional packages, as pyproject.toml names them")
    commands.add_parser("compile", help="compile the hot path, and wait for it")
    options, options.arguments = parser.parse_known_args()
    if options.arguments and options.command != "cluster":
        parser.error(f"unrecognized arguments: {' '.join(options.arguments)}")
    environment = Environment(options.venv)
    try:
        check_python()
        restore_links()
        if options.command == "compile":
            environment.compile()
        elif options.command == "install":
            with environment.locked():
                environment.install(options.extra)
        else:
            (serve if options.command == "serve" else cluster)(environment, options)
    except CannotStart as error:
        raise SystemExit(f"ottla: {error}") from None


if __name__ == "__main__":
    main()
