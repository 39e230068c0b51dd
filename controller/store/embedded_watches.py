"""Tracks the watches of one embedded store, with the zxids that each watched node had when the watch was set.

Changes made by this process fire watches at once. Changes made by other processes are found by comparison: a node is
unchanged as long as its zxids are.
"""

from collections.abc import Callable

from ottla.controller.store.metadata_store import EventType, Watch, WatchedEvent
from ottla.controller.store.tree import Node
from ottla.controller.store.watches import Watches

Seen = tuple[int, int] | None
"""czxid and mzxid (data) or pzxid (children) of a node; None of a node that does not exist."""


class WatchesOverFile:
    """Watches, and by path the node's zxids when they were set."""

    def __init__(self) -> None:
        self._watches = Watches()
        self._data: dict[str, Seen] = {}
        self._children: dict[str, Seen] = {}

    def add_data(self, path: str, node: Node | None, watch: Watch) -> None:
        """Watch the node, whose current state is `node`."""
        self._data.setdefault(path, _data_of(node))
        self._watches.add_data(path, watch)

    def add_children(self, path: str, node: Node, watch: Watch) -> None:
        """Watch the node's children."""
        self._children.setdefault(path, _children_of(node))
        self._watches.add_children(path, watch)

    def take(self, event: WatchedEvent) -> list[Watch]:
        """Remove and return the callbacks that `event` fires."""
        if event.type is not EventType.CHILDREN_CHANGED:
            self._data.pop(event.path, None)
        if event.type in (EventType.CHILDREN_CHANGED, EventType.DELETED):
            self._children.pop(event.path, None)
        return self._watches.take(event)

    def changes(self, find: Callable[[str], Node | None]) -> list[WatchedEvent]:
        """The events of the watched nodes, as far as they can be derived from the current tree."""
        events = []
        for path, seen in self._data.items():
            now = _data_of(find(path))
            if now != seen:
                events.append(WatchedEvent(_data_event(seen, now), path))
        for path, seen in self._children.items():
            now = _children_of(find(path))
            if now != seen:
                gone = now is None or seen is None or now[0] != seen[0]
                events.append(WatchedEvent(EventType.DELETED if gone else EventType.CHILDREN_CHANGED, path))
        return events

    def clear(self) -> None:
        """Drop all watches, because the session ended."""
        self._watches.clear()
        self._data.clear()
        self._children.clear()


def _data_of(node: Node | None) -> Seen:
    return None if node is None else (node.czxid, node.mzxid)


def _children_of(node: Node | None) -> Seen:
    return None if node is None else (node.czxid, node.pzxid)


def _data_event(seen: Seen, now: Seen) -> EventType:
    if seen is None:
        return EventType.CREATED
    if now is None or now[0] != seen[0]:
        return EventType.DELETED
    return EventType.DATA_CHANGED
