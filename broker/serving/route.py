"""Describes how one (API, version) is served: its handler, and the encoding of its answers.

The dispatcher creates a `Route` for the first such request. The metrics count its requests, and observe the answers that it encodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, final

from ottla.broker.request.context import encoder, slice_encoder
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import Message

if TYPE_CHECKING:
    from ottla.broker.handlers.table import FrameHandler, Handler
    from ottla.broker.request.context import RequestContext
    from ottla.protocol.schema.registry import Api

BETWEEN_BROKERS: Final = frozenset(
    {
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.ALTER_PARTITION,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.WRITE_TXN_MARKERS,
    }
)
"""Requests between brokers and from the controller. They must not wait behind clients' requests, some of which wait for their effect.

This holds for senders that may act as brokers (`Access.acts_for_cluster`). Requests of other senders wait like clients' requests, and are
then refused.
"""

WAITING: Final = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.ELECT_LEADERS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.UPDATE_FEATURES,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.ALTER_PARTITION,
        ApiKey.ALLOCATE_PRODUCER_IDS,
    }
)
"""Requests that always wait for the metadata store or a thread."""


EXEMPT: Final = frozenset(
    {
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.ALTER_PARTITION,
        ApiKey.WRITE_TXN_MARKERS,
    }
)
"""APIs that are never throttled. Those of clients without the right to use them are."""


@final
class Route:
    """Handler and codec of one API version."""

    __slots__ = (
        "api_key",
        "decode",
        "encode",
        "encode_in_slices",
        "flexible_request_header",
        "frame_handler",
        "handler",
        "has_client_id",
        "has_error_code",
        "has_throttle_time",
        "is_between_brokers",
        "is_exempt",
        "request_class",
        "requests",
        "response_class",
        "sample_at",
        "version",
        "waits_for_store",
    )

    def __init__(
        self,
        types: Api,
        version: int,
        handler: Handler | None,
        frame_handler: FrameHandler | None = None,
    ) -> None:
        self.api_key = types.key
        self.version = version
        self.handler = handler or _handle_no_message
        self.frame_handler = frame_handler
        self.has_client_id = types.request_header_version(version) >= 1
        """False only for ControlledShutdown 0, whose header ends with the correlation id."""
        self.request_class = types.request
        self.response_class: Callable[..., Message] = types.response
        self.has_error_code: bool = any(field.name == "error_code" for field in types.response.SCHEMA.fields)
        self.flexible_request_header = types.request_header_version(version) >= 2
        header_is_flexible = types.response_header_version(version) >= 1
        self.decode = types.request.decoder(version)
        self.encode = encoder(types.response, version, header_is_flexible=header_is_flexible)
        self.encode_in_slices = slice_encoder(version, header_is_flexible=header_is_flexible)
        self.is_between_brokers = types.key in BETWEEN_BROKERS
        """Whether the request of a broker never waits behind others; a large one takes turns with others all the same."""
        self.is_exempt = types.key in EXEMPT
        """Whether the request does not count towards a client's request quota."""
        self.waits_for_store = types.key in WAITING
        """Whether a large request begins only when another one may wait for the metadata store."""
        self.has_throttle_time: bool = any(field.name == "throttle_time_ms" for field in types.response.SCHEMA.fields)
        """Whether answers contain the throttle time of the client."""
        self.requests = 0
        self.sample_at = 0  # the request, counted from 1, that is measured next; 0: none


def _handle_no_message(request: Any, context: RequestContext) -> Any:
    raise AssertionError("the handler of frames answers every request")
