"""Gives a wheel with compiled modules the tag of the Linux systems on which they run (PEP 600), so that package indexes accept it.

The tag names the version of glibc that the modules ask for. They may need no library that such a system does not have.
"""

import base64
import hashlib
import re
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

LIBRARIES = {
    *("libc.so.6", "libm.so.6", "libdl.so.2", "librt.so.1", "libpthread.so.0"),
    *("ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"),
}
"""Libraries of glibc, which every system with a tag of PEP 600 has."""
OLDEST = (2, 17)
"""The oldest glibc whose systems are still in use."""
PROCESSORS = {"x86_64": 62, "aarch64": 183}
"""Name in a tag -> number in an ELF file."""

_SEGMENT = struct.Struct("<IIQQQQQQ")
_LOAD, _DYNAMIC = 1, 2
_ENTRY = struct.Struct("<qQ")
_NEEDED, _STRINGS, _VERSIONS, _VERSIONS_COUNT = 1, 5, 0x6FFFFFFE, 0x6FFFFFFF
_NEED = struct.Struct("<HHIII")
_NAME = struct.Struct("<IHHII")


class Wants(NamedTuple):
    """What a binary asks of a system."""

    processor: int
    libraries: set[str]
    glibc: tuple[int, int]


def wants_of(binary: bytes) -> Wants:
    """Read the dynamic section of an ELF file of 64 bits. Raises ValueError for another file."""
    if binary[:6] != b"\x7fELF\x02\x01":
        raise ValueError("this is no ELF file of 64 bits")
    (processor,) = struct.unpack_from("<H", binary, 18)
    start, size, count = struct.unpack_from("<Q", binary, 32)[0], *struct.unpack_from("<HH", binary, 54)
    segments = [_SEGMENT.unpack_from(binary, start + number * size) for number in range(count)]

    def offset_of(address: int) -> int:
        for kind, _, offset, begin, _, length, _, _ in segments:
            if kind == _LOAD and begin <= address < begin + length:
                return int(offset + address - begin)
        raise ValueError(f"no segment holds the address {address:#x}")

    entries: list[tuple[int, int]] = []
    for kind, _, offset, _, _, length, _, _ in segments:
        if kind == _DYNAMIC:
            entries = [_ENTRY.unpack_from(binary, at) for at in range(offset, offset + length, _ENTRY.size)]
    entries = entries[: next((number for number, (tag, _) in enumerate(entries) if tag == 0), 0)]
    values = dict(entries)
    if _STRINGS not in values:
        return Wants(processor, set(), (0, 0))  # linked statically
    strings = offset_of(values[_STRINGS])

    def string(at: int) -> str:
        return binary[strings + at : binary.index(b"\0", strings + at)].decode()

    libraries = {string(value) for tag, value in entries if tag == _NEEDED}
    versions = [string(name) for name in _version_names(binary, offset_of, values)]
    found = [re.fullmatch(r"GLIBC_(\d+)\.(\d+)(?:\.\d+)?", version) for version in versions]
    return Wants(processor, libraries, max(((int(each[1]), int(each[2])) for each in found if each is not None), default=(0, 0)))


def _version_names(binary: bytes, offset_of: Callable[[int], int], values: dict[int, int]) -> Iterator[int]:
    """Where in the strings the versions of symbols are that the binary needs."""
    at = offset_of(values[_VERSIONS]) if _VERSIONS in values else 0
    for _ in range(values.get(_VERSIONS_COUNT, 0)):
        _, names, _, first, following = _NEED.unpack_from(binary, at)
        name_at = at + first
        for _ in range(names):
            _, _, _, name, next_name = _NAME.unpack_from(binary, name_at)
            yield name
            name_at += next_name
        at += following


def publishable(wheel: Path) -> Path:
    """Replace a wheel for one kind of processor by the same with a tag of PEP 600, and return that. Other wheels stay as they are.

    Raises SystemExit if a module is for another processor, or needs a library that such systems may lack.
    """
    named = re.search(r"-linux_(\w+)\.whl$", wheel.name)
    if named is None:
        return wheel
    processor = named[1]
    glibc = OLDEST
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.endswith(".so"):
                wants = wants_of(archive.read(name))
                if wants.processor != PROCESSORS.get(processor):
                    raise SystemExit(f"{wheel.name}: {name} is not for {processor}")
                if wants.libraries - LIBRARIES:
                    raise SystemExit(f"{wheel.name}: {name} needs {', '.join(sorted(wants.libraries - LIBRARIES))}")
                glibc = max(glibc, wants.glibc)
    platform = f"manylinux_{glibc[0]}_{glibc[1]}_{processor}"
    made = wheel.with_name(wheel.name.replace(f"linux_{processor}", platform))
    _retag(wheel, made, f"linux_{processor}", platform)
    wheel.unlink()
    return made


def _retag(wheel: Path, made: Path, old: str, platform: str) -> None:
    """Copy a wheel with another platform in its metadata; all else, times too, stays."""
    with zipfile.ZipFile(wheel) as archive, zipfile.ZipFile(made, "w") as copy:
        (tags,) = (name for name in archive.namelist() if name.endswith(".dist-info/WHEEL"))
        text = re.sub(rf"^(Tag: \S+-){old}$", rf"\g<1>{platform}", archive.read(tags).decode(), flags=re.MULTILINE)
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        line = f"{tags},sha256={digest},{len(text.encode())}"
        for item in archive.infolist():
            content = archive.read(item)
            if item.filename == tags:
                content = text.encode()
            elif item.filename.endswith(".dist-info/RECORD"):
                content = re.sub(rf"^{re.escape(tags)},.*$", line, content.decode(), flags=re.MULTILINE).encode()
            copy.writestr(item, content, item.compress_type)
