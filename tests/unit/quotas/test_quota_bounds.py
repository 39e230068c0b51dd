"""The quota of a client: the most specific of those of its user, its client id, both, and the defaults."""

import pytest

from ottla.broker.quotas.quota_bounds import ABSENT, MAX_TAG_LENGTH, Entity, QuotaBounds, Tags

BOTH = Tags("alice", "app")
OF_USER = Tags("alice", ABSENT)
OF_CLIENT_ID = Tags(ABSENT, "app")

PRECEDENCE: tuple[tuple[Entity, Tags], ...] = (
    (("alice", "app"), BOTH),
    (("alice", None), BOTH),
    (("alice", ABSENT), OF_USER),
    ((None, "app"), BOTH),
    ((None, None), BOTH),
    ((None, ABSENT), OF_USER),
    ((ABSENT, "app"), OF_CLIENT_ID),
    ((ABSENT, None), OF_CLIENT_ID),
)


def a_table(*entities: Entity) -> QuotaBounds:
    """Quotas of all entities; each has its place in `PRECEDENCE` as its bound."""
    bounds = QuotaBounds()
    for entity in entities:
        bounds.set(entity, [each for each, _ in PRECEDENCE].index(entity))
    return bounds


@pytest.mark.parametrize("first", range(len(PRECEDENCE)))
def test_the_most_specific_quota_counts(first: int) -> None:
    bounds = a_table(*(entity for entity, _ in PRECEDENCE[first:]))
    assert bounds.find("alice", "app") == (PRECEDENCE[first][1], first)


@pytest.mark.parametrize("only", range(len(PRECEDENCE)))
def test_every_level_counts_alone(only: int) -> None:
    entity, tags = PRECEDENCE[only]
    assert a_table(entity).find("alice", "app") == (tags, only)


@pytest.mark.parametrize(
    ("user", "client_id", "expected"),
    [
        ("bob", "app", (Tags("bob", "app"), 3)),
        ("bob", "other", (Tags("bob", "other"), 4)),
        ("alice", "other", (Tags("alice", "other"), 1)),
        ("alice", "", (Tags("alice", ABSENT), 2)),
        ("bob", "", (Tags("bob", ABSENT), 5)),
    ],
)
def test_another_client_has_another_quota(user: str, client_id: str, expected: tuple[Tags, float]) -> None:
    assert a_table(*(entity for entity, _ in PRECEDENCE)).find(user, client_id) == expected


def test_a_client_without_a_quota_is_not_limited() -> None:
    assert a_table(("alice", ABSENT), (ABSENT, "app")).find("bob", "other") is None
    assert a_table((ABSENT, "app"), (ABSENT, None)).find("bob", "") is None


def test_a_client_that_is_called_like_the_default_is_not_the_default() -> None:
    bounds = QuotaBounds()
    bounds.set((ABSENT, "<default>"), 1)
    assert bounds.find("alice", "app") is None
    assert bounds.find("alice", "<default>") == (Tags(ABSENT, "<default>"), 1)


def test_a_removed_quota_counts_no_more() -> None:
    bounds = a_table(("alice", ABSENT), (None, ABSENT))
    assert bounds.set(("alice", ABSENT), None)
    assert bounds.find("alice", "app") == (OF_USER, 5)
    assert not bounds.set(("alice", ABSENT), None)
    assert not bounds.set((None, ABSENT), 5)
    assert len(bounds) == 1


def test_a_very_long_name_is_not_kept() -> None:
    bounds = a_table(("alice", ABSENT), (ABSENT, None))
    bounds.set((ABSENT, "c" * 30_000), 9)
    assert bounds.find("bob", "c" * 30_000) == (Tags(ABSENT, "c" * MAX_TAG_LENGTH), 9)
    assert bounds.find("bob", "c" * 30_001) == (Tags(ABSENT, "c" * MAX_TAG_LENGTH), 7)
