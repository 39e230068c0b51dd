"""Offers what tests of the handlers have in common."""

import pytest

from ottla.replication.control import replica_manager
from tests.support.looked_at import LookedAt


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The indexes of the partitions that fetches look at."""
    monkeypatch.setattr(replica_manager, "Partition", LookedAt)
    LookedAt.indexes.clear()
    return LookedAt.indexes
