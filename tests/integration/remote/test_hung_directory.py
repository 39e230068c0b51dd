"""The directory of a remote store hangs, as that of a machine that is gone: a pipe that nobody writes to stands for its file."""

import os
from pathlib import Path

from ottla.config.remote_storage import LOCAL_TIERED_STORAGE
from ottla.storage.remote.local_layout import ROOT
from tests.support.broker_process import BrokerProcess
from tests.support.tiered_broker import SETTINGS, TieredBroker, records


class DirectoryBroker(TieredBroker):
    """A broker whose store is in a directory."""

    def __init__(self, directory: Path, shared: Path) -> None:
        keys = {"remote.log.storage.manager.class.name": LOCAL_TIERED_STORAGE, "rsm.config.dir": str(shared)}
        BrokerProcess.__init__(self, directory, **(SETTINGS | keys))


def test_a_broker_stops_in_time_while_the_directory_of_its_store_hangs(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    broker = DirectoryBroker(tmp_path / "broker", shared)
    broker.start()
    try:
        broker.create("t", **{"remote.storage.enable": "true"})
        broker.fill("t", 0, 100)
        broker.await_(lambda: broker.are_all_copied("t"), "the copies")
        first = min((shared / ROOT).rglob("*.index"))
        kept = first.read_bytes()
        first.unlink()
        os.mkfifo(first)
        with broker.reading("t", 0) as reading:
            reading.poll()
            broker.await_(lambda: reading.poll() is None, "a read")
        assert broker.stop() == 0
        first.unlink()
        first.write_bytes(kept)
        broker.start()
        assert broker.consume("t", 0, 100) == records(0, 100)
    finally:
        if broker.is_running:
            broker.kill()
