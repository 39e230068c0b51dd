"""Handles UpdateFeatures (api 57), versions 0-1. In ZooKeeper mode a broker supports no feature, so none can be finalized. KIP-584."""

from ottla.broker.request.context import RequestContext
from ottla.broker.request.turns import Steps
from ottla.controller.admin.features import are_versioned
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdatableFeatureResult, UpdateFeaturesRequest, UpdateFeaturesResponse

UNSUPPORTED = "Could not apply finalized feature update because the provided feature is not supported."
FIRST_VERSION_WITH_UPGRADE_TYPE = 1
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


def handle_update_features(request: UpdateFeaturesRequest, context: RequestContext) -> Steps[UpdateFeaturesResponse]:
    """Refuse each update."""
    if not context.is_authorized(Operation.ALTER, ResourceType.CLUSTER):
        return _refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if not context.broker.cluster.controller.is_active:
        return _refused(ErrorCode.NOT_CONTROLLER)
    if not are_versioned(context.broker.config):
        return UpdateFeaturesResponse(error_code=ErrorCode.INVALID_REQUEST, error_message="Feature versioning system is disabled.")
    results = {}
    for update in request.feature_updates:
        yield
        if update.feature not in results:  # the first update of a feature that is named twice counts
            message = _objection(update, context.api_version)
            results[update.feature] = UpdatableFeatureResult(
                feature=update.feature, error_code=ErrorCode.INVALID_REQUEST, error_message=message
            )
    return UpdateFeaturesResponse(error_message=None, results=list(results.values()))


def _objection(update: FeatureUpdateKey, version: int) -> str:
    if version >= FIRST_VERSION_WITH_UPGRADE_TYPE:
        upgrade_type = update.upgrade_type
    else:
        upgrade_type = SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE
    if not update.feature:
        return "Feature name can not be empty."
    if upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return "Received unknown upgrade type."
    level = update.max_version_level
    if level >= 1:
        return UNSUPPORTED
    if upgrade_type != UPGRADE:
        return "Can not delete non-existing finalized feature."
    return f"Can not provide versionLevel: {level} less than 1 without setting the SAFE downgradeType in the request."


def _refused(code: ErrorCode) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(error_code=code, error_message=code.message)
