"""The file `quorum-state` of a KRaft voter (KIP-595; version 1: KIP-853). Declared, not used in ZooKeeper mode."""

from protocol.schema.message import Int32, Int64, Message, NullableArray, String, Struct, Uuid, data, field, since, struct, until


@struct
class Voter(Struct):
    voter_id: Int32 = field()


@data(versions=(0, 1), flexible=0)
class QuorumStateData(Message):
    cluster_id: String = until(0)
    leader_id: Int32 = field(default=-1)
    leader_epoch: Int32 = field(default=-1)
    voted_id: Int32 = field(default=-1)
    voted_directory_id: Uuid = since(1)
    applied_offset: Int64 = until(0)
    current_voters: NullableArray[Voter] = until(0)
