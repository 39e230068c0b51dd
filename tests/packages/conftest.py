"""Prepares what the tests of packages share: a minimal Debian, the package, the image. `make package-test` runs them, as root."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packages import dockerfile, roots
from tests.packages.debian_package import Package, build_package
from tests.packages.dockerfile import Image
from tests.packages.sources import ROOT, digest_of, only

PROGRAMS = ("debootstrap", "unshare", "nsenter", "chroot", "mount", "ip", "hostname")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests of this folder without OTTLA_PACKAGES."""
    if "OTTLA_PACKAGES" in os.environ:
        return
    reason = "make package-test runs it, as root and with the network (OTTLA_PACKAGES=1)"
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def work() -> Iterator[Path]:
    """The folder build/packages, for this test run alone. What was built of the same sources before is in it."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        pytest.fail(f"missing: {', '.join(missing)} (Debian: apt-get install debootstrap iproute2 hostname)", pytrace=False)
    if os.geteuid() != 0:
        pytest.fail("a root file system can be made and mounted by root only", pytrace=False)
    folder = ROOT / "build" / "packages"
    folder.mkdir(parents=True, exist_ok=True)
    mask = os.umask(0o022)
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pytest.fail(f"another test run uses {folder}", pytrace=False)
        yield folder
    os.umask(mask)


@pytest.fixture(scope="session")
def base(work: Path) -> Path:
    """A minimal Debian, only to be read."""
    return roots.base(work)


@pytest.fixture(scope="session")
def package(work: Path, base: Path) -> Package:
    """The Debian package of the checkout."""
    return build_package(work, base)


@pytest.fixture(scope="session")
def image(work: Path, base: Path) -> Image:
    """What the Dockerfile makes of the checkout."""
    context = dockerfile.context_files(ROOT, (ROOT / ".dockerignore").read_text())
    folder = only(work, "image", digest_of([Path("Dockerfile"), *context]))
    return dockerfile.build(ROOT, base, folder)


@pytest.fixture
def scratch(work: Path) -> Iterator[Path]:
    """An empty folder for the roots of one test, on the disk of the layers; removed afterwards."""
    folder = work / "scratch"
    roots.remove(folder)
    folder.mkdir()
    yield folder
    roots.remove(folder)
