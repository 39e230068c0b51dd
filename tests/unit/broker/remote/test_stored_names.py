"""The name of an object tells of which copy it is, and no two names tell the same: one of them would be removed for the other."""

import pytest

from ottla.broker.remote.stored_names import stored_name
from ottla.protocol.uuid import to_text
from ottla.storage.remote.entries import SegmentId, TopicIdPartition

ID, UUID = bytes([1] * 16), bytes([255] * 16)
TOPIC_ID, SEGMENT = to_text(ID), f"{7:020d}-{to_text(UUID)}"


@pytest.mark.parametrize(
    "name", [f"a-1.b_c-{TOPIC_ID}/12/{SEGMENT}.rsm-manifest", f"a-1.b_c-12-{TOPIC_ID}/{SEGMENT}.leader_epoch_checkpoint"]
)
def test_a_name_tells_the_copy(name: str) -> None:
    found = stored_name(name)

    assert found is not None
    assert found.entry().id == SegmentId(TopicIdPartition(ID, "a-1.b_c", 12), UUID)
    assert found.entry().start_offset == 7


@pytest.mark.parametrize(
    "name",
    [
        f"t-{TOPIC_ID[:-1]}R/0/{SEGMENT}.log",
        f"t-{TOPIC_ID}/0/{SEGMENT[:-1]}x.log",
        f"t-{TOPIC_ID}/00/{SEGMENT}.log",
        f"t-{TOPIC_ID}/\u0663/{SEGMENT}.log",
        f"t-0-{TOPIC_ID[:-1]}R/{SEGMENT}.log",
        f"t-00-{TOPIC_ID}/{SEGMENT}.log",
        f"other/t-{TOPIC_ID}/0/{SEGMENT}.log",
        f"t-{TOPIC_ID}/0/{SEGMENT}.log.old",
        f"t-{TOPIC_ID}/0/{SEGMENT[1:]}.log",
    ],
)
def test_a_name_that_only_resembles_that_of_a_copy_tells_none(name: str) -> None:
    assert stored_name(name) is None
