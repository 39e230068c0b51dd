"""Makes network namespaces for the commands of roots: one alone, or several that reach each other by name.

A namespace lives as long as a process that does nothing in it but wait for the end of its standard input. So it ends with this process,
however that ends, and takes its devices with it.
"""

import shlex
import subprocess
from collections.abc import Iterable

ADDRESSES = "192.0.2"
"""A range for examples (RFC 5737), which no network uses."""
FIRST = 10


class Place:
    """A network namespace and a host name, as every container has them."""

    def __init__(self, name: str) -> None:
        """Makes it with nothing but the loopback device. Raises RuntimeError."""
        self.name = name
        script = f"ip link set lo up && hostname {shlex.quote(name)} && echo made && exec cat"
        self._holder = subprocess.Popen(
            ["unshare", "--net", "--uts", "sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != "made\n":
            self.close()
            raise RuntimeError(f"no network namespace for {name} could be made")

    def __enter__(self) -> "Place":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """Process id of the process that holds the namespace."""
        return self._holder.pid

    def entering(self) -> list[str]:
        """The start of the command line of a process that belongs here."""
        return ["nsenter", f"--target={self.pid}", "--net", "--uts"]

    def run(self, *command: str) -> str:
        """The output of a program of the host in this network. Raises CalledProcessError."""
        return subprocess.run([*self.entering(), *command], stdout=subprocess.PIPE, text=True, timeout=120, check=True).stdout

    def close(self) -> None:
        """End it."""
        assert self._holder.stdin is not None
        assert self._holder.stdout is not None
        self._holder.stdin.close()
        self._holder.wait()
        self._holder.stdout.close()


class Network:
    """Places with these names that reach each other."""

    def __init__(self, names: Iterable[str]) -> None:
        """Makes a place for each, and joins them by a bridge in a further namespace."""
        self.places: dict[str, Place] = {}
        self._switch = Place("switch")
        try:
            self._switch.run("ip", "link", "add", "name", "bridge", "type", "bridge")
            self._switch.run("ip", "link", "set", "dev", "bridge", "up")
            for number, name in enumerate(names, FIRST):
                self.places[name] = Place(name)
                self._join(self.places[name], number)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Network":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def hosts(self) -> str:
        """The content of /etc/hosts for all places."""
        lines = [f"{ADDRESSES}.{number} {name}\n" for number, name in enumerate(self.places, FIRST)]
        return "".join(["127.0.0.1 localhost\n", *lines])

    def address(self, name: str) -> str:
        """The address of a place."""
        return f"{ADDRESSES}.{FIRST + list(self.places).index(name)}"

    def close(self) -> None:
        """End all."""
        for place in (*self.places.values(), self._switch):
            place.close()

    def _join(self, place: Place, number: int) -> None:
        here, there = f"here{number}", f"there{number}"
        self._switch.run("ip", "link", "add", "name", here, "type", "veth", "peer", "name", there)
        self._switch.run("ip", "link", "set", "dev", there, "netns", str(place.pid))
        self._switch.run("ip", "link", "set", "dev", here, "master", "bridge", "up")
        place.run("ip", "link", "set", "dev", there, "name", "eth0")
        place.run("ip", "address", "add", f"{ADDRESSES}.{number}/24", "dev", "eth0")
        place.run("ip", "link", "set", "dev", "eth0", "up")
