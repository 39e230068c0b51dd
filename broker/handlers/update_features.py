"""UpdateFeatures (api 57), versions 0-1 (KIP-584). In ZooKeeper mode a broker supports no feature, so none can be finalized."""

from broker.request_context import RequestContext
from broker.security.authorizer import Operation, ResourceType
from protocol.errors import ErrorCode
from protocol.messages.update_features import UpdatableFeatureResult, UpdateFeaturesRequest, UpdateFeaturesResponse

UNSUPPORTED = "Could not apply finalized feature update because the provided feature is not supported."


def handle_update_features(request: UpdateFeaturesRequest, context: RequestContext) -> UpdateFeaturesResponse:
    """Refuse each."""
    if not context.is_authorized(Operation.ALTER, ResourceType.CLUSTER):
        return _refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if not context.broker.controller.is_active:
        return _refused(ErrorCode.NOT_CONTROLLER)
    results = [
        UpdatableFeatureResult(feature=update.feature, error_code=ErrorCode.INVALID_REQUEST, error_message=UNSUPPORTED)
        for update in request.feature_updates
    ]
    return UpdateFeaturesResponse(error_message=None, results=results)


def _refused(code: ErrorCode) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(error_code=code, error_message=code.message)
