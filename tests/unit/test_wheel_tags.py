"""Tags of wheels: what compiled modules ask of a system, and wheels that say so."""

import base64
import hashlib
import os
import sys
import zipfile
from importlib import import_module
from pathlib import Path

import pytest

from ottla.protocol.compiled import IS_COMPILED
from tests.wheel_tags import LIBRARIES, PROCESSORS, publishable, wants_of

ROOT = Path(__file__).parents[2]
NAME = "made-1.0-cp311-cp311-linux_x86_64.whl"
TAGS = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: false\nTag: cp311-cp311-linux_x86_64\n"


def digest_of(content: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def a_wheel(folder: Path, name: str, **binaries: bytes) -> Path:
    """A wheel with these modules."""
    files = {f"made/{module}.so": binary for module, binary in binaries.items()} | {"made-1.0.dist-info/WHEEL": TAGS.encode()}
    with zipfile.ZipFile(folder / name, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            archive.writestr(zipfile.ZipInfo(path, (2024, 1, 2, 3, 4, 6)), content, zipfile.ZIP_DEFLATED)
        record = "".join(f"{path},{digest_of(content)},{len(content)}\n" for path, content in files.items())
        archive.writestr("made-1.0.dist-info/RECORD", record + "made-1.0.dist-info/RECORD,,\n")
    return folder / name


def shared_object(module: str) -> bytes:
    """The binary of a module of the standard library."""
    file = getattr(import_module(module), "__file__", None)
    if file is None:
        pytest.skip(f"{module} is part of the interpreter here")
    return Path(file).read_bytes()


def test_a_program_asks_for_the_glibc_of_this_machine_or_an_older_one() -> None:
    version = (os.confstr("CS_GNU_LIBC_VERSION") or "").removeprefix("glibc ")
    wants = wants_of(Path(sys.executable).resolve().read_bytes())
    assert "libc.so.6" in wants.libraries
    assert (2, 2) <= wants.glibc <= tuple(int(part) for part in version.split("."))


def test_what_is_no_binary_is_refused() -> None:
    with pytest.raises(ValueError, match="no ELF file of 64 bits"):
        wants_of(b"#!/bin/sh\n")


@pytest.mark.skipif(not IS_COMPILED, reason="there are no compiled modules")
def test_the_compiled_modules_ask_for_nothing_but_glibc() -> None:
    modules = [path for floor in ("broker", "coordination", "protocol", "replication", "storage") for path in (ROOT / floor).rglob("*.so")]
    assert len(modules) > 10
    for module in modules:
        assert wants_of(module.read_bytes()).libraries <= LIBRARIES, module


def test_a_wheel_says_which_systems_can_run_its_modules(tmp_path: Path) -> None:
    binary = shared_object("_json")
    major, minor = max((2, 17), wants_of(binary).glibc)
    made = publishable(a_wheel(tmp_path, NAME, one=binary))
    platform = f"manylinux_{major}_{minor}_x86_64"
    assert [path.name for path in tmp_path.iterdir()] == [made.name] == [f"made-1.0-cp311-cp311-{platform}.whl"]
    with zipfile.ZipFile(made) as archive:
        tags = archive.read("made-1.0.dist-info/WHEEL")
        assert tags == TAGS.replace("linux_x86_64", platform).encode()
        assert f"WHEEL,{digest_of(tags)},{len(tags)}\n" in archive.read("made-1.0.dist-info/RECORD").decode()
        assert archive.read("made/one.so") == binary
        assert archive.getinfo("made/one.so").date_time == (2024, 1, 2, 3, 4, 6)
        assert archive.testzip() is None


def test_a_module_for_another_processor_is_refused(tmp_path: Path) -> None:
    binary = shared_object("_json")
    other = next(name for name, number in PROCESSORS.items() if number != wants_of(binary).processor)
    wheel = a_wheel(tmp_path, NAME.replace("x86_64", other), one=binary)
    with pytest.raises(SystemExit, match=rf"made/one\.so is not for {other}"):
        publishable(wheel)
    assert [path.name for path in tmp_path.iterdir()] == [wheel.name]


def test_a_module_that_needs_another_library_is_refused(tmp_path: Path) -> None:
    binary = shared_object("_ssl")
    if wants_of(binary).libraries <= LIBRARIES:
        pytest.skip("OpenSSL is part of the module here")
    wheel = a_wheel(tmp_path, NAME, one=binary)
    with pytest.raises(SystemExit, match=r"made/one\.so needs .*libssl"):
        publishable(wheel)
    assert [path.name for path in tmp_path.iterdir()] == [wheel.name]


def test_a_wheel_for_every_platform_stays_as_it_is(tmp_path: Path) -> None:
    wheel = a_wheel(tmp_path, "made-1.0-py3-none-any.whl")
    before = wheel.read_bytes()
    assert publishable(wheel) == wheel
    assert wheel.read_bytes() == before
