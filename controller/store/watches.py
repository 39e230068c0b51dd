"""Keeps the one-shot watches of one store by path, and selects those that an event fires."""

from ottla.controller.store.metadata_store import EventType, Watch, WatchedEvent

_DATA_EVENTS = frozenset({EventType.CREATED, EventType.DATA_CHANGED, EventType.DELETED})
_CHILD_EVENTS = frozenset({EventType.CHILDREN_CHANGED, EventType.DELETED})


class Watches:
    """Callbacks by path. A callback that is registered twice for one kind of change of one path fires once, as in ZooKeeper."""

    def __init__(self) -> None:
        self._data: dict[str, dict[Watch, None]] = {}
        self._children: dict[str, dict[Watch, None]] = {}

    def add_data(self, path: str, watch: Watch) -> None:
        """Watch for the creation, change or deletion of the node itself."""
        self._data.setdefault(path, {})[watch] = None

    def add_children(self, path: str, watch: Watch) -> None:
        """Watch for the creation or deletion of children, or for the deletion of the node."""
        self._children.setdefault(path, {})[watch] = None

    @property
    def data_paths(self) -> list[str]:
        """The paths whose node itself is watched."""
        return list(self._data)

    @property
    def children_paths(self) -> list[str]:
        """The paths whose children are watched."""
        return list(self._children)

    def take(self, event: WatchedEvent) -> list[Watch]:
        """Remove and return the callbacks that `event` fires."""
        taken: dict[Watch, None] = {}
        if event.type in _DATA_EVENTS:
            taken |= self._data.pop(event.path, {})
        if event.type in _CHILD_EVENTS:
            taken |= self._children.pop(event.path, {})
        return list(taken)

    def clear(self) -> None:
        """Drop all watches, because the session ended."""
        self._data.clear()
        self._children.clear()
