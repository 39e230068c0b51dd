"""Reports configuration changes to a broker: reads the entities that the notifications under /config/changes name.

Kafka's ZkConfigManager.
"""

import logging
from collections.abc import Callable

from ottla.controller.admin.change_notifications import ChangeNotifications
from ottla.controller.errors import NoAuth, NoNode
from ottla.controller.store.metadata_store import Get, MetadataStore, data_and_stat
from ottla.controller.znodes.changes import decode_config, decode_config_change
from ottla.controller.znodes.layout import CONFIG_CHANGES, config_path
from ottla.controller.znodes.znode_json import MalformedZNode
from ottla.storage.disk.clock import Clock

logger = logging.getLogger(__name__)

OnChange = Callable[[str, str, dict[str, str]], None]
"""Entity type, sanitized entity name (`t`, `0`, `<default>`, `u1/clients/c1`), and all current overrides of the entity."""


class ConfigChanges(ChangeNotifications):
    """The listener of one broker. It runs in a task of its own; `on_change` is called on the event loop."""

    def __init__(self, store: MetadataStore, clock: Clock, on_change: OnChange, on_malformed: Callable[[], None] = lambda: None) -> None:
        """`on_malformed` is called when the node of a changed entity cannot be read or decoded. No notification may follow its repair."""
        super().__init__(store, clock, CONFIG_CHANGES, "configurations", self._report)
        self._on_change = on_change
        self._on_malformed = on_malformed

    async def _report(self, path: str, data: bytes | None) -> None:
        entity_path = decode_config_change(path, data)
        entity_type, _, entity_name = entity_path.partition("/")
        path = config_path(entity_type, entity_name)
        (outcome,) = await self._store.pipeline([Get(path)])
        try:
            overrides = {} if isinstance(outcome, NoNode) else decode_config(path, data_and_stat(outcome)[0])
        except (MalformedZNode, NoAuth):
            self._on_malformed()
            raise
        logger.info("configuration of %s changed", entity_path)
        self._on_change(entity_type, entity_name, overrides)
