"""Implements `ottla remote scrub --remove`: removes objects of copies that the metadata have had, and say that they were removed.

All brokers write the entry of a copy before its objects. So an object of which the metadata have never had an entry is none that a broker
forgot. Its entry is lost, by an election or by the end of `__remote_log_metadata`, or it is in another cluster. So the object may be all
that is left of its records. Where the log begins tells nothing: a new leader moves the log start behind records of which it finds no copy.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

from ottla.broker.remote.stored_names import stored_name
from ottla.cli.remote.stored_copies import CopyName

if TYPE_CHECKING:
    from ottla.broker.remote.stored_names import StoredName
    from ottla.storage.remote.ports import RemoteStore, StoredObject

SAFE_AGE_MS: Final = 24 * 60 * 60 * 1000
"""Age below which no object is removed."""
_NO_COPY: Final = "its name is not that of a part of a copy"
_YOUNG: Final = "it is less than a day old, or another part of the same copy is"
_NOT_DESCRIBED: Final = (
    "the metadata have never had its copy: they may have lost the entry, and no other place may have its records (ottla remote restore), "
    "or the copy may belong to another cluster"
)


async def remove_orphans(store: RemoteStore, orphans: Sequence[StoredObject], described: Collection[CopyName]) -> dict[str, str | None]:
    """Removes objects of no copy. Returns for each why it stays, None if it is gone. Raises RemoteStoreError.

    `described` has the copies of which the metadata have had an entry. They were read after the objects were listed.
    """
    of_store = await store.now_ms()
    limit_ms = (int(time.time() * 1000) if of_store is None else of_store) - SAFE_AGE_MS
    names = {each.name: stored_name(each.name) for each in orphans}
    young = {name.copy for each in orphans if (name := names[each.name]) is not None and each.modified_ms > limit_ms}
    outcomes: dict[str, str | None] = {}
    copies: set[StoredName] = set()
    for each in orphans:
        name = names[each.name]
        if name is None:
            outcomes[each.name] = _NO_COPY
        elif name.copy in young:
            outcomes[each.name] = _YOUNG
        elif CopyName(name.entry().id, name.start_offset) not in described:
            outcomes[each.name] = _NOT_DESCRIBED
        else:
            outcomes[each.name] = None
            copies.add(name.copy)
    for copy in sorted(copies):
        await store.delete(copy.entry())
    return outcomes
