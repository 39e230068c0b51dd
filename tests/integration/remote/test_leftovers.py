"""Copies of a topic that was deleted while its leader could not remove them go, and their entries with them."""

import json
from pathlib import Path
from unittest.mock import AsyncMock

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient

from ottla.cli.main import main
from ottla.config.remote_storage import LOCAL_TIERED_STORAGE
from ottla.replication.remote.remote_log_manager import RemoteLogManager
from tests.integration.remote.test_copied_and_read import RECORDS, SETTINGS, fill, local_starts
from tests.support.in_process_broker import a_broker_in_process
from tests.support.several_brokers import until


def test_copies_that_no_leader_removed_go_after_the_second_listing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    keys = SETTINGS | {"remote.log.storage.manager.class.name": LOCAL_TIERED_STORAGE, "rsm.config.dir": str(shared)}
    monkeypatch.setattr(RemoteLogManager, "on_partitions_deleted", AsyncMock())
    with a_broker_in_process(tmp_path / "logs", **keys, **{"ottla.remote.leftovers.interval.ms": "300"}) as broker:
        fill(broker, 2)
        until(lambda: min(local_starts(broker, 2)) > RECORDS // 2)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.delete_topics(["t"])["t"].result(30)

        def copies() -> list[object]:
            found: list[object] = json.loads(CliRunner().invoke(main, ["remote", "list", "-b", broker.bootstrap, "--json"]).stdout)
            return found

        until(lambda: not list(shared.rglob("*.log")))
        until(lambda: not copies())
        assert not list(shared.rglob("*.*index"))
