"""Finds the quota of a client among those of users, client ids, pairs of both, and their defaults. Kafka's DefaultQuotaCallback.

`ClientQuotas` has one `QuotaBounds` for each resource. The most specific quota counts, in this order: the pair of user and client id, the
user with the default client id, the user, the default user with the client id, both defaults, the default user, the client id, the default
client id.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

ABSENT: Final = ""
"""Stands for the user or client id that an entity does not have."""

Entity: TypeAlias = tuple[str | None, str | None]
"""User and client id for which a quota is set: a name, None for the default, ABSENT if the quota does not depend on it."""


class Tags(NamedTuple):
    """The clients that share one quota: those of a user, of a client id, or of both. `ABSENT` stands for any."""

    user: str
    client_id: str


class QuotaBounds:
    """The quotas of one resource."""

    __slots__ = ("_bounds",)

    def __init__(self) -> None:
        self._bounds: dict[Entity, float] = {}

    def __len__(self) -> int:
        return len(self._bounds)

    def set(self, entity: Entity, bound: float | None) -> bool:
        """Set the quota of an entity, or remove it. Returns whether that changes anything."""
        if self._bounds.get(entity) == bound:
            return False
        if bound is None:
            del self._bounds[entity]
        else:
            self._bounds[entity] = bound
        return True

    def find(self, user: str, client_id: str) -> tuple[Tags, float] | None:
        """The clients that share the quota of this one, and the quota. None if the client is not limited.

        A client with an empty client id has the quotas of its user only.
        """
        both = Tags(user, client_id)
        of_user = Tags(user, ABSENT)
        of_client_id = Tags(ABSENT, client_id)
        candidates: tuple[tuple[Entity, Tags], ...] = (
            ((user, client_id), both),
            ((user, None), both),
            ((user, ABSENT), of_user),
            ((None, client_id), both),
            ((None, None), both),
            ((None, ABSENT), of_user),
            ((ABSENT, client_id), of_client_id),
            ((ABSENT, None), of_client_id),
        )
        for entity, tags in candidates:
            if client_id == ABSENT and entity[1] != ABSENT:
                continue
            bound = self._bounds.get(entity)
            if bound is not None:
                return tags, bound
        return None
