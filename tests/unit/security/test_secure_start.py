"""The files of a secure start are written whole, or not at all."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla.broker.configuration.secure_start import SecureStart
from ottla.config.errors import ConfigError


@contextmanager
def no_file_may_grow() -> Iterator[None]:
    """Every write to a file fails, as on a full disk. Pipes still work."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("file", ["admin.password", "broker.pem", "certificate.pem"])
def test_a_file_that_a_full_disk_refused_is_made_by_the_next_start(tmp_path: Path, file: str) -> None:
    start = SecureStart(tmp_path / "secure")
    start.prepare()
    (start.folder / file).unlink()
    with no_file_may_grow(), pytest.raises(ConfigError, match=r"the files in .*/secure cannot be made: File too large"):
        start.prepare()
    assert not (start.folder / file).exists()
    start.prepare()
    assert (start.folder / file).read_text().strip()
    assert sorted(path.name for path in start.folder.iterdir()) == ["admin.password", "alice.password", "broker.pem", "certificate.pem"]
