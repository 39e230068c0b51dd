"""Stands in for a host that `ottla doctor` examines: healthy, until a test changes an attribute."""

import time

from ottla.cli.doctor.host import Mount, Space

GIB = 2**30


class ImaginedHost:
    """Implements `ottla.cli.doctor.host.Host`."""

    def __init__(self) -> None:
        self.files: int | None = 1_000_000
        self.maps: int | None = 262_144
        self.mounted: Mount | None = Mount("/", "ext4", frozenset({"rw", "relatime"}))
        self.room: Space | None = Space(50 * GIB, 100 * GIB, 1000, 2000)
        self.seconds: float | None = 0.002
        self.synchronised: bool | None = True
        self.time = time.time()
        self.names: dict[str, list[str]] = {"broker.test": ["192.0.2.1"], "localhost": ["127.0.0.1"]}
        self.reverse: dict[str, str] = {"192.0.2.1": "broker.test"}

    def open_files(self, pid: int | None) -> int | None:
        return self.files

    def memory_maps(self) -> int | None:
        return self.maps

    def mount(self, path: str) -> Mount | None:
        return self.mounted

    def space(self, path: str) -> Space | None:
        return self.room

    def flush_seconds(self, path: str) -> float | None:
        return self.seconds

    def is_clock_synchronised(self) -> bool | None:
        return self.synchronised

    def now(self) -> float:
        return self.time

    def own_name(self) -> str:
        return "broker.test"

    def addresses(self, name: str) -> list[str]:
        return self.names.get(name, [])

    def name_of(self, address: str) -> str | None:
        return self.reverse.get(address)
