"""CRC32C as RFC 3720 has it, whatever way the function is found."""

import importlib.machinery
import subprocess
import sys

import crc32c as package
import pytest

from ottla.protocol.records.checksum import crc32c, extension


def test_the_check_value() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA


def test_of_parts_it_is_that_of_the_whole() -> None:
    assert crc32c(b"6789", crc32c(b"12345")) == crc32c(memoryview(b"123456789"))


def test_it_is_the_function_of_the_package() -> None:
    data = bytes(range(256)) * 67
    assert crc32c(data) == package.crc32c(data)


def test_an_extension_elsewhere_is_found_through_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.machinery.PathFinder, "find_spec", lambda *_: None)
    assert extension().crc32c(b"123456789") == 0xE3069283


def test_nothing_else_is_loaded() -> None:
    loaded = "sorted(sys.modules.keys() & {'argparse', 'crc32c', 'importlib.metadata'})"
    code = f"import ottla.protocol.records.checksum, sys; sys.exit({loaded} or 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
