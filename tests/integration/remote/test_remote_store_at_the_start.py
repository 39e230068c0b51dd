"""A broker starts with a remote store that answers, and otherwise ends with one line, before anything is written."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.broker.server import CannotStart
from ottla.config.remote_storage import AIVEN_REMOTE_STORAGE, LOCAL_TIERED_STORAGE
from tests.support.fault_proxy import Fault, a_fault_proxy, always
from tests.support.in_process_broker import a_broker_in_process
from tests.support.moto_server import s3_keys
from tests.support.s3_servers import KINDS, S3Server, an_s3_server


@pytest.fixture(scope="module", params=KINDS)
def s3(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with an_s3_server(request.param, tmp_path_factory.mktemp("s3"), "bucket") as server:
        yield server


def start(directory: Path, name: str, keys: dict[str, str]) -> None:
    config = {"remote.log.storage.system.enable": "true", "remote.log.storage.manager.class.name": name, **keys}
    with a_broker_in_process(directory, **config) as broker:
        assert broker.services.remote is not None


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


def test_a_directory_that_is_not_mounted_ends_the_start_and_gets_no_copies(tmp_path: Path) -> None:
    shared, other = tmp_path / "shared", tmp_path / "other"
    shared.mkdir()
    other.mkdir()
    keys = {"rsm.config.dir": str(shared)}
    start(tmp_path / "logs", LOCAL_TIERED_STORAGE, keys)
    shared.rename(tmp_path / "unmounted")
    shared.mkdir()

    with pytest.raises(CannotStart, match="kafka-tiered-storage is no directory; mount it, or make this folder") as refusal:
        start(tmp_path / "logs", LOCAL_TIERED_STORAGE, keys)

    assert "\n" not in str(refusal.value)
    assert not list(shared.iterdir())
    (other / "kafka-tiered-storage").mkdir()
    start(tmp_path / "logs", LOCAL_TIERED_STORAGE, {"rsm.config.dir": str(other)})
    shared.rmdir()
    (tmp_path / "unmounted").rename(shared)
    start(tmp_path / "logs", LOCAL_TIERED_STORAGE, keys)


def test_a_store_of_another_cluster_does_not_count_as_one_that_was_used(tmp_path: Path) -> None:
    stores = [tmp_path / name for name in ("of another", "new")]
    for store in stores:
        store.mkdir()
    start(tmp_path / "one", LOCAL_TIERED_STORAGE, {"rsm.config.dir": str(stores[0])})
    with pytest.raises(CannotStart, match="the remote store belongs to the cluster"):
        start(tmp_path / "two", LOCAL_TIERED_STORAGE, {"rsm.config.dir": str(stores[0])})

    start(tmp_path / "two", LOCAL_TIERED_STORAGE, {"rsm.config.dir": str(stores[1])})


def test_a_bucket_that_is_there_is_a_store(s3: S3Server, tmp_path: Path) -> None:
    start(tmp_path / "logs", AIVEN_REMOTE_STORAGE, s3_keys(s3.url))


@pytest.mark.parametrize("kind", ["directory", "bucket"])
def test_a_store_of_another_cluster_ends_the_start(s3: S3Server, tmp_path: Path, kind: str) -> None:
    (tmp_path / "shared").mkdir()
    name, keys = LOCAL_TIERED_STORAGE, {"rsm.config.dir": str(tmp_path / "shared")}
    if kind == "bucket":
        name, keys = AIVEN_REMOTE_STORAGE, s3_keys(s3.url, **{"key.prefix": "shared/"})
    start(tmp_path / "one", name, keys)

    with pytest.raises(CannotStart, match="the remote store belongs to the cluster") as refusal:
        start(tmp_path / "two", name, keys)

    assert "\n" not in str(refusal.value)
    start(tmp_path / "one", name, keys)


def test_a_bucket_that_is_not_there_ends_the_start(s3: S3Server, tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match=r"another.*: NoSuchBucket: The specified bucket does not exist;") as refusal:
        start(tmp_path / "logs", AIVEN_REMOTE_STORAGE, s3_keys(s3.url, "another"))

    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "logs").exists()


def test_credentials_that_are_refused_end_the_start(s3: S3Server, tmp_path: Path) -> None:
    with a_fault_proxy(s3.url) as proxy:
        proxy.choose = always(Fault.FORBIDDEN)
        with pytest.raises(CannotStart, match="403 Forbidden: Fault; check it, and the keys") as refusal:
            start(tmp_path / "logs", AIVEN_REMOTE_STORAGE, s3_keys(proxy.url))

    assert "\n" not in str(refusal.value)
    assert "moto-secret" not in str(refusal.value)
    assert not (tmp_path / "logs").exists()


@pytest.mark.soak
def test_credentials_that_the_server_itself_refuses_end_the_start(tmp_path: Path) -> None:
    with an_s3_server("versitygw", tmp_path / "s3", "bucket") as s3, pytest.raises(CannotStart, match="403") as refusal:
        start(tmp_path / "logs", AIVEN_REMOTE_STORAGE, s3_keys(s3.url, **{"storage.aws.secret.access.key": "wrong-secret"}))

    assert "\n" not in str(refusal.value)
    assert "wrong-secret" not in str(refusal.value)
    assert not (tmp_path / "logs").exists()


def test_a_server_that_is_not_there_ends_the_start(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="bucket") as refusal:
        start(tmp_path / "logs", AIVEN_REMOTE_STORAGE, s3_keys("http://127.0.0.1:9"))

    assert "\n" not in str(refusal.value)
    assert "moto-secret" not in str(refusal.value)
    assert not (tmp_path / "logs").exists()
