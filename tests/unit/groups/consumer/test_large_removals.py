"""Members that leave a consumer group together do not cost as much as the group each."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from ottla.coordination.groups.consumer import removal
from ottla.coordination.groups.consumer.effects import Write
from ottla.coordination.groups.consumer.subscriptions import counts_after
from tests.support.consumer_groups import ConsumerDriver

TOPICS = tuple(f"t{number:03}" for number in range(50))
LEAVING = 20


def test_the_topics_of_a_group_are_copied_once_however_many_members_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[int] = []

    def counted(counts: Mapping[str, int], gone: Collection[str], added: Collection[str]) -> dict[str, int]:
        copied.append(len(counts))
        return counts_after(counts, gone, added)

    driver = ConsumerDriver()
    driver.join("stays", *TOPICS)
    for number in range(LEAVING):
        driver.join(f"m{number}", TOPICS[number])
    group = driver.group
    leaving = [group.members[f"m{number}"] for number in range(LEAVING)]
    monkeypatch.setattr(removal, "counts_after", counted)

    with pytest.raises(StopIteration) as decided:
        next(removal.remove(group, leaving, "they leave", driver.context()))
    write = decided.value.value[0]

    assert sum(copied) == len(TOPICS)
    assert isinstance(write, Write)
    for record in write.records:
        group.apply(record)
    assert group.names == dict.fromkeys(TOPICS, 1)
