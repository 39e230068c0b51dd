"""Runs a LogManager whose ports the test drives by hand, and restarts it."""

from collections.abc import Mapping
from functools import cache
from random import Random

from ottla.config.broker import BrokerConfig
from ottla.config.broker_properties import BrokerProperties
from ottla.config.topic import TopicConfig
from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.pending_topic_id import make_durable
from ottla.storage.manager.log_manager import LogManager
from ottla.storage.manager.new_logs import NEW_LOGS, NewLog
from ottla.storage.upkeep.directory_renames import RENAME_LOG
from tests.support.background import ManualBackground
from tests.support.clocks import ManualClock
from tests.support.filesystems import FaultyFileSystem, MemoryFileSystem

CLUSTER_ID = "L6meopUYTaSTXyS2IxEz4A"


@cache
def _defaults() -> BrokerConfig:
    """In force until there is a manager, which has a configuration of its own."""
    return BrokerConfig({})


class Disks:
    """The parts that survive a restart: the file system and the clock. Each start makes a new manager on them."""

    def __init__(self, filesystem: FileSystem | None = None, log_dirs: str = "/data", seed: int = 0) -> None:
        self.filesystem = filesystem or MemoryFileSystem()
        self.clock = ManualClock()
        self.log_dirs = log_dirs
        self.topics: dict[str, dict[str, str]] = {}
        self.broker = _defaults()
        self.background = ManualBackground(self.clock)
        self.makes_topic_ids_durable_at_once = True
        """Otherwise a thread does it soon, and a log takes no records before; most tests have neither a thread nor a loop."""
        self._random = Random(seed)
        self._topic_configs: dict[str, tuple[tuple[dict[str, str], BrokerProperties], TopicConfig]] = {}

    def a_manager(self, **config: str | int) -> LogManager:
        """A new manager that has not touched the disk; keys with underscores for dots."""
        properties = {key.replace("_", "."): str(value) for key, value in config.items()}
        # Small, because an index is preallocated, which in memory takes memory.
        self.broker = BrokerConfig({"log.dirs": self.log_dirs, "log.index.size.max.bytes": "1024", **properties})
        self.background = ManualBackground(self.clock)
        self.background.done_at_once |= {NEW_LOGS, RENAME_LOG}  # the controller's requests wait for them, and most tests have no loop
        manager = LogManager(self.broker, self.topic_config, self.filesystem, self.clock, self.background, random=self._random)
        if self.makes_topic_ids_durable_at_once:
            manager.context.on_topic_id_due = make_durable
        return manager

    def topic_config(self, topic: str) -> TopicConfig:
        """The configuration in force of a topic. That of thousands of partitions is made once."""
        made_of = dict(self.topics.get(topic, {})), self.broker.current
        before, config = self._topic_configs.get(topic, (None, None))
        if config is None or before != made_of:
            config = TopicConfig(made_of[0], self.broker)
            self._topic_configs[topic] = made_of, config
        return config

    def start(self, broker_id: int = 0, cluster_id: str = CLUSTER_ID, **config: str | int) -> LogManager:
        """A manager that is up."""
        manager = self.a_manager(**config)
        manager.open()
        manager.identify(cluster_id, broker_id)
        manager.load()
        manager.future_logs.cut()
        manager.start()
        return manager

    def crash(self, manager: LogManager) -> None:
        """The process is gone; what it wrote is there."""
        for each in manager.all_logs():
            each.close_without_writing()
        manager.directories.unlock()

    def watch(self, *names: str) -> list[str]:
        """The paths of the calls of these names from now on; the file system is a `FaultyFileSystem`."""
        calls: list[str] = []

        def note(name: str, path: str) -> bool:
            if name in names:
                calls.append(path)
            return False

        assert isinstance(self.filesystem, FaultyFileSystem)
        self.filesystem.fails_if = note
        return calls

    def settle(self) -> None:
        """Runs what is due now."""
        self.background.advance()


def a_future_log(manager: LogManager, log: PartitionLog, log_dir: str) -> PartitionLog:
    """One that is to take the place of `log`. Raises LogDirFailure when none could be made."""
    manager.future_logs.check_none_offline(log.topic_partition)
    manager.new_logs.make([NewLog(log.topic_partition, log.topic_id, is_new=True, future_in=log_dir)], lambda error: None)
    manager.directories.check_known(log_dir)
    made = manager.get(log.topic_partition, future=True)
    assert made is not None
    return made


def offsets(log: PartitionLog) -> tuple[int, int, int]:
    """(log start, high watermark, log end)."""
    return log.log_start_offset, log.high_watermark, log.log_end_offset


def topic(**config: str | int) -> Mapping[str, str]:
    """Topic overrides; keys with underscores for dots."""
    return {key.replace("_", "."): str(value) for key, value in config.items()}
