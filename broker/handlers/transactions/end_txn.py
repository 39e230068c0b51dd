"""EndTxn (api 26), versions 0-4 (KIP-98).

There is no transaction coordinator here, so no transactional id is known: INVALID_PRODUCER_ID_MAPPING.
"""

from broker.request.context import RequestContext
from broker.security.authorizer import Operation, ResourceType
from protocol.errors import ErrorCode
from protocol.messages.end_txn import EndTxnRequest, EndTxnResponse


def handle_end_txn(request: EndTxnRequest, context: RequestContext) -> EndTxnResponse:
    """Refuse."""
    if not context.is_authorized(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return EndTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    return EndTxnResponse(error_code=ErrorCode.INVALID_PRODUCER_ID_MAPPING if request.transactional_id else ErrorCode.INVALID_REQUEST)
