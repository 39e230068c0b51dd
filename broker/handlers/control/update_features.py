"""Handles UpdateFeatures (api 57), versions 0-2. KIP-584: the active controller finalizes levels of features. KIP-778: it only judges them.

From version 2 on one wrong update refuses all, and the answer has one error (KIP-1022). The answer waits until this broker has seen the
change.
"""

from collections.abc import Mapping
from typing import Final

from ottla.broker.request.context import RequestContext
from ottla.controller.admin.features import are_versioned
from ottla.controller.errors import FeatureUpdateFailed, NotController
from ottla.controller.events.feature_updates import FeatureOutcome, FeatureUpdate, UpgradeType
from ottla.coordination.error_map import cut
from ottla.pauses import each, pause
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdatableFeatureResult, UpdateFeaturesRequest, UpdateFeaturesResponse

FIRST_VERSION_WITH_UPGRADE_TYPE: Final = 1
FIRST_VERSION_WITH_ONE_RESULT: Final = 2


async def handle_update_features(request: UpdateFeaturesRequest, context: RequestContext) -> UpdateFeaturesResponse:
    """Have the controller of this broker carry out the updates."""
    if not context.is_authorized(Operation.ALTER, ResourceType.CLUSTER):
        return _refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    cluster = context.broker.cluster
    if not cluster.controller.is_active:
        return _refused(ErrorCode.NOT_CONTROLLER)
    if not are_versioned(context.broker.config):
        return UpdateFeaturesResponse(error_code=ErrorCode.INVALID_REQUEST, error_message="Feature versioning system is disabled.")
    all_or_none = context.api_version >= FIRST_VERSION_WITH_ONE_RESULT
    updates = context.scratch(await each(request.feature_updates, lambda asked: _update(asked, context.api_version)))
    try:
        outcome = await cluster.controller.update_features(updates, validate_only=request.validate_only, all_or_none=all_or_none)
        failed = outcome.epoch is not None and not await cluster.features.seen(outcome.epoch, request.timeout_ms)
    except NotController:
        return _refused(ErrorCode.NOT_CONTROLLER)
    except FeatureUpdateFailed:
        outcome, failed = FeatureOutcome({}, None), True
    if all_or_none:
        return await _one_result(updates, outcome.objections, failed=failed)
    return UpdateFeaturesResponse(error_message=None, results=await _results(updates, outcome.objections, failed=failed))


def _update(asked: FeatureUpdateKey, version: int) -> FeatureUpdate:
    kind = asked.upgrade_type
    if version < FIRST_VERSION_WITH_UPGRADE_TYPE:
        kind = UpgradeType.SAFE_DOWNGRADE if asked.allow_downgrade else UpgradeType.UPGRADE
    return FeatureUpdate(asked.feature, asked.max_version_level, kind)


async def _one_result(updates: list[FeatureUpdate], objections: Mapping[str, str], *, failed: bool) -> UpdateFeaturesResponse:
    for update in updates:
        await pause()
        if (objection := objections.get(update.feature)) is not None:
            reason = f"Invalid update version {update.level} for feature {update.feature}. {objection}"
            return UpdateFeaturesResponse(
                error_code=ErrorCode.INVALID_UPDATE_VERSION,
                error_message=cut(f"The update failed for all features since the following feature had an error: {reason}"),
            )
    return _refused(ErrorCode.FEATURE_UPDATE_FAILED) if failed else UpdateFeaturesResponse(error_message=None)


async def _results(updates: list[FeatureUpdate], objections: Mapping[str, str], *, failed: bool) -> list[UpdatableFeatureResult]:
    """One result for each feature, in the order of their first updates."""
    results: dict[str, UpdatableFeatureResult] = {}
    for feature, _, _ in updates:
        await pause()
        if feature not in results:
            code = ErrorCode.INVALID_REQUEST if feature in objections else ErrorCode.FEATURE_UPDATE_FAILED if failed else ErrorCode.NONE
            message = objections.get(feature, code.message)
            results[feature] = UpdatableFeatureResult(feature=feature, error_code=code, error_message=message)
    return list(results.values())


def _refused(code: ErrorCode) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(error_code=code, error_message=code.message)
