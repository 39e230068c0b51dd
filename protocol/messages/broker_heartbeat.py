"""BrokerHeartbeat (api 63): a broker stays in a KRaft cluster (KIP-631). Version 1 reports failed log directories (KIP-858). Not served."""

from protocol.api_keys import ApiKey
from protocol.schema.message import Array, Bool, Int16, Int32, Int64, Message, Uuid, field, request, response, since


@request(ApiKey.BROKER_HEARTBEAT)
class BrokerHeartbeatRequest(Message):
    broker_id: Int32 = field()
    broker_epoch: Int64 = field(default=-1)
    current_metadata_offset: Int64 = field()
    want_fence: Bool = field()
    want_shut_down: Bool = field()
    offline_log_dirs: Array[Uuid] = since(1, tag=0)


@response(ApiKey.BROKER_HEARTBEAT)
class BrokerHeartbeatResponse(Message):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    is_caught_up: Bool = field()
    is_fenced: Bool = field(default=True)
    should_shut_down: Bool = field()
