"""Values of the control records in the KRaft metadata log: change of leader, borders of a snapshot, version and voters (KIP-595, 630,
853).

Transaction markers, the control records of ordinary topics, are built in `protocol.records.builder`. Declared, not used in ZooKeeper mode.
"""

from protocol.schema.message import Array, Int16, Int32, Int64, Message, String, Struct, UInt16, Uuid, data, field, since, struct


@data(versions=(0, 0), flexible=0)
class KRaftVersionRecord(Message):
    version: Int16 = field()
    kraft_version: Int16 = field()


@struct
class LeaderChangeMessageVoter(Struct):
    voter_id: Int32 = field()
    voter_directory_id: Uuid = since(1)


@data(versions=(0, 1), flexible=0)
class LeaderChangeMessage(Message):
    version: Int16 = field()
    leader_id: Int32 = field()
    voters: Array[LeaderChangeMessageVoter] = field()
    granting_voters: Array[LeaderChangeMessageVoter] = field()


@data(versions=(0, 0), flexible=0)
class SnapshotFooterRecord(Message):
    version: Int16 = field()


@data(versions=(0, 0), flexible=0)
class SnapshotHeaderRecord(Message):
    version: Int16 = field()
    last_contained_log_timestamp: Int64 = field()


@struct
class Endpoint(Struct):
    name: String = field()
    host: String = field()
    port: UInt16 = field()


@struct
class KRaftVersionFeature(Struct):
    min_supported_version: Int16 = field()
    max_supported_version: Int16 = field()


@struct
class VotersRecordVoter(Struct):
    voter_id: Int32 = field()
    voter_directory_id: Uuid = field()
    endpoints: Array[Endpoint] = field()
    kraft_version_feature: KRaftVersionFeature = field()


@data(versions=(0, 0), flexible=0)
class VotersRecord(Message):
    version: Int16 = field()
    voters: Array[VotersRecordVoter] = field()
