"""Declares the state of share partitions as records of `__share_group_state` (KIP-932).

The version of a key gives its kind: 0 a snapshot, 1 an update, which changes the snapshot before it. Both keys have the same fields.
"""

from ottla.protocol.schema.message import (
    Array,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    String,
    Struct,
    Uuid,
    data,
    field,
    struct,
)


@data(versions=(0, 0), flexible=None)
class ShareSnapshotKey(Message):
    group_id: String = field()
    topic_id: Uuid = field()
    partition: Int32 = field()


@struct
class StateBatch(Struct):
    first_offset: Int64 = field()
    last_offset: Int64 = field()
    delivery_state: Int8 = field()
    delivery_count: Int16 = field()


@data(versions=(0, 0), flexible=0)
class ShareSnapshotValue(Message):
    snapshot_epoch: Int32 = field()
    state_epoch: Int32 = field()
    leader_epoch: Int32 = field()
    start_offset: Int64 = field()
    delivery_complete_count: Int32 = field(tag=0, default=-1)
    create_timestamp: Int64 = field()
    write_timestamp: Int64 = field()
    state_batches: Array[StateBatch] = field()


@data(versions=(1, 1), flexible=None)
class ShareUpdateKey(Message):
    group_id: String = field()
    topic_id: Uuid = field()
    partition: Int32 = field()


@data(versions=(0, 0), flexible=0)
class ShareUpdateValue(Message):
    snapshot_epoch: Int32 = field()
    leader_epoch: Int32 = field()
    start_offset: Int64 = field()
    delivery_complete_count: Int32 = field(tag=0, default=-1)
    state_batches: Array[StateBatch] = field()
