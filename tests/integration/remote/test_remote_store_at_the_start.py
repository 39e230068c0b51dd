"""A broker starts with a remote store that answers, and otherwise ends with one line, before anything is written."""

from pathlib import Path

import pytest

from ottla.broker.server import CannotStart
from ottla.config.remote_storage import AIVEN_REMOTE_STORAGE, LOCAL_TIERED_STORAGE
from tests.support.fault_proxy import Fault, a_fault_proxy, always
from tests.support.in_process_broker import a_broker_in_process
from tests.support.moto_server import a_moto_server, s3_keys


def start(directory: Path, name: str, keys: dict[str, str]) -> None:
    config = {"remote.log.storage.system.enable": "true", "remote.log.storage.manager.class.name": name, **keys}
    with a_broker_in_process(directory, **config) as broker:
        assert broker.services.data.remote_reads is not None


def test_a_directory_that_is_there_is_a_store(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()

    start(tmp_path / "logs", LOCAL_TIERED_STORAGE, {"rsm.config.dir": str(shared)})

    assert (shared / "kafka-tiered-storage").is_dir()
    assert (tmp_path / "logs" / "remote-log-index-cache").is_dir()


def test_a_directory_that_is_not_there_ends_the_start(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="gone") as refusal:
        start(tmp_path / "logs", LOCAL_TIERED_STORAGE, {"rsm.config.dir": str(tmp_path / "gone")})

    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "logs").exists()


def test_a_bucket_that_is_there_is_a_store(tmp_path: Path) -> None:
    with a_moto_server("bucket") as url:
        start(tmp_path / "logs", AIVEN_REMOTE_STORAGE, s3_keys(url))


def test_a_bucket_that_is_not_there_ends_the_start(tmp_path: Path) -> None:
    with a_moto_server("bucket") as url, pytest.raises(CannotStart, match="another") as refusal:
        start(tmp_path / "logs", AIVEN_REMOTE_STORAGE, s3_keys(url, "another"))

    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "logs").exists()


def test_credentials_that_are_refused_end_the_start(tmp_path: Path) -> None:
    with a_moto_server("bucket") as url, a_fault_proxy(url) as proxy:
        proxy.choose = always(Fault.FORBIDDEN)
        with pytest.raises(CannotStart, match="403") as refusal:
            start(tmp_path / "logs", AIVEN_REMOTE_STORAGE, s3_keys(proxy.url))

    assert "\n" not in str(refusal.value)
    assert "moto-secret" not in str(refusal.value)
    assert not (tmp_path / "logs").exists()


def test_a_server_that_is_not_there_ends_the_start(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="bucket") as refusal:
        start(tmp_path / "logs", AIVEN_REMOTE_STORAGE, s3_keys("http://127.0.0.1:9"))

    assert "\n" not in str(refusal.value)
    assert "moto-secret" not in str(refusal.value)
    assert not (tmp_path / "logs").exists()
