"""Makes root file systems of Debian and carries out commands in them, each in namespaces of its own.

A root is an overlay: layers that are only read, and a folder for the changes. Every command mounts it in a mount namespace of its own, and
is process 1 of a process namespace. So nothing stays mounted, and no process is left, when the command has ended. `Running` is a
command that goes on, which others can join, as `docker exec` does.
"""

import json
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.packages import host
from tests.packages.networks import Place
from tests.support.apache_kafka.guard import process_guard

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
STEP_SECONDS = 1500
"""Time for a step, seconds. The longest compiles the package on a busy machine."""
POLL_SECONDS = 0.05


class StepFailed(Exception):
    """A command ended otherwise than it should; the message has its output."""


class How(NamedTuple):
    """How a command is carried out."""

    user: str = "root"
    folder: str = "/"
    environment: Mapping[str, str] = {}
    umask: str = "0022"


AS_ROOT = How()


class Root:
    """A file system of Debian that can be changed."""

    def __init__(self, folder: Path, layers: Sequence[Path]) -> None:
        """`layers` are only read, the uppermost first. Changes that `folder` has already are there again."""
        for path in (folder, *layers):
            if set(str(path)) & set(",:\\"):
                raise SystemExit(f"{path} cannot be a layer: an overlay takes no path with a comma, colon or backslash")
        self.folder = folder
        self.layers = list(layers)
        self.volumes: dict[str, Path] = {}
        """Folders of the host, by the paths at which they appear."""
        self.proc_options = "rw"
        """Options of the mount at /proc."""
        for name in ("changes", "work", "merged"):
            (folder / name).mkdir(parents=True, exist_ok=True)

    @property
    def changes(self) -> Path:
        """The folder with what differs from the layers."""
        return self.folder / "changes"

    @property
    def merged(self) -> Path:
        """The place of the mount, which only the processes of the root see."""
        return self.folder / "merged"

    @property
    def all_layers(self) -> list[Path]:
        """The layers of a root on top of this one."""
        return [self.changes, *self.layers]

    def write(self, path: str, content: str | bytes) -> None:
        """Put a file there, while no command runs. Its folder gets the rights 0755 if the changes have it not yet."""
        file = self.changes / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)

    def run(self, *command: str, how: How = AS_ROOT, status: int = 0) -> str:
        """The output of a command with its errors, in the network of the host. Raises StepFailed."""
        return _output_of(self.starting(command, how), status)

    def starting(self, command: Sequence[str], how: How) -> list[str]:
        """The command line of the host that starts a command here."""
        merged = shlex.quote(str(self.merged))
        layers = ":".join(map(str, self.layers))
        options = f"index=off,lowerdir={layers},upperdir={self.changes},workdir={self.folder / 'work'}"
        lines = [
            "set -e",
            f"mount -t overlay overlay -o {shlex.quote(options)} {merged}",
            f"mount -t proc -o {self.proc_options} proc {merged}/proc",
            f"mkdir -p {merged}/dev/shm",
            f"mount -t tmpfs -o mode=1777 tmpfs {merged}/dev/shm",
            *(f"mount --bind {shlex.quote(str(source))} {merged}{shlex.quote(path)}" for path, source in self.volumes.items()),
            f"exec {shlex.join(self.inside(command, how))}",
        ]
        return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", "\n".join(lines)]

    def inside(self, command: Sequence[str], how: How) -> list[str]:
        """The command line of the host for a process that sees the mount."""
        variables = {"PATH": PATH, "HOME": "/", "LANG": "C.UTF-8", **how.environment}
        shell = ["sh", "-c", f'umask {how.umask} && cd {shlex.quote(how.folder)} && exec "$@"', "sh", *command]
        assignments = [f"{name}={value}" for name, value in variables.items()]
        return ["chroot", f"--userspec={how.user}", str(self.merged), "env", "--ignore-environment", *assignments, *shell]


class Running:
    """A command of a root that goes on, in a network of its own. Leave the block, and it is gone."""

    def __init__(self, root: Root, place: Place, command: Sequence[str], how: How = AS_ROOT) -> None:
        """Starts it. It is process 1 of its process namespace, as in a container."""
        self.root = root
        self.place = place
        self.how = how
        self.log = root.folder / "output"
        with self.log.open("wb") as output:
            line = [*place.entering(), *root.starting(command, how)]
            self._process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        self.pid = self._first_process()
        """Process id of the command on the host."""
        # The kernel ends it with unshare only as long as it is root.
        process_guard().watch(self.pid)

    def __enter__(self) -> "Running":
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.send(signal.SIGKILL)
        self._process.wait()
        process_guard().release(self.pid)

    def said(self) -> str:
        """Its output so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def run(self, *command: str, how: How | None = None, status: int = 0, input: str = "") -> str:
        """The output of another command in the same namespaces, by default as the same user. Raises StepFailed."""
        joining = ["nsenter", f"--target={self.pid}", "--mount", "--pid", "--net", "--uts"]
        return _output_of([*joining, *self.root.inside(command, self.how if how is None else how)], status, input)

    def json(self, *command: str) -> object:
        """The document that a command prints."""
        return json.loads(self.run(*command))

    def send(self, number: signal.Signals) -> None:
        """Signal the command."""
        os.kill(self.pid, number)

    def stop(self, number: signal.Signals = signal.SIGTERM, seconds: float = 60) -> int:
        """Signal the command; its exit status."""
        self.send(number)
        return self.wait(seconds)

    def wait(self, seconds: float = 60) -> int:
        """The exit status, once it has ended. Raises subprocess.TimeoutExpired."""
        return self._process.wait(seconds)

    def user_ids(self) -> set[str]:
        """The numbers of the users as which the command runs: real, effective, saved, and of its files."""
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="utf-8")
        return set(next(line for line in status.splitlines() if line.startswith("Uid:")).split()[1:])

    def _first_process(self) -> int:
        """The child of unshare, once the root is mounted and the child is in it. Raises StepFailed if there is none."""
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        deadline = time.monotonic() + 30
        found = ""
        while self._process.poll() is None and time.monotonic() < deadline:
            child, *_ = children.read_text(encoding="ascii").split() or [""]
            found = child or found  # one that has ended is no longer among the children
            with suppress(FileNotFoundError):
                if found and not Path("/").samefile(f"/proc/{found}/root"):
                    return int(found)
            time.sleep(POLL_SECONDS)
        if found and self._process.poll() is not None:
            return int(found)  # it has ended already; its output says why
        self._process.kill()
        self._process.wait()
        raise StepFailed(f"no process was started in {self.root.folder}:\n{self.said()}")


def base(work: Path) -> Path:
    """A minimal Debian, made by debootstrap once for a work folder. Raises StepFailed."""
    made, marker = work / host.SUITE, work / f"{host.SUITE}.complete"
    if not marker.exists():
        remove(made)
        # debootstrap mounts /proc in the new root for a while. In a mount namespace that ends with it in any case.
        _output_of(["unshare", "--mount", "debootstrap", "--variant=minbase", host.SUITE, str(made), *host.mirror()], 0)
        # Images of Debian have this line, too.
        (made / "etc" / "dpkg" / "dpkg.cfg.d" / "unsafe-io").write_text("force-unsafe-io\n", encoding="utf-8")
        marker.touch()
    # This host may have another proxy, or other authorities, than when the root was made.
    (made / "etc" / "apt" / "apt.conf.d" / "90host").write_text(host.apt_settings(), encoding="utf-8")
    if Path("/etc/pip.conf").exists():
        shutil.copy("/etc/pip.conf", made / "etc")
    certificates = host.certificates()
    if certificates is not None:
        (made / host.CERTIFICATES_OF_HOST.lstrip("/")).write_bytes(certificates)
    return made


def remove(folder: Path) -> None:
    """Remove the files of a root; nothing is mounted there."""
    if folder.exists():
        shutil.rmtree(folder)


def _output_of(command: Sequence[str], status: int, input: str = "") -> str:
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "encoding": "utf-8", "errors": "replace"}
    done = subprocess.run(command, input=input, timeout=STEP_SECONDS, check=False, **output)
    if done.returncode != status:
        raise StepFailed(f"status {done.returncode} instead of {status}: {shlex.join(command)}\n{done.stdout[-6000:]}")
    return done.stdout
