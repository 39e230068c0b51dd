"""Declares UpdateFeatures (api 57, KIP-584): a client finalizes or deletes feature levels.

Version 1 can validate without changing anything, and has the kind of downgrade that is allowed (KIP-778).
Version 2 has one result for the whole request (KIP-1022).
"""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import (
    Array,
    Bool,
    Int8,
    Int16,
    Int32,
    Message,
    NullableString,
    String,
    Struct,
    field,
    request,
    response,
    since,
    struct,
    until,
)


@struct
class FeatureUpdateKey(Struct):
    """`upgrade_type` is 1 for upgrade only, 2 for safe downgrade, 3 for unsafe downgrade."""

    feature: String = field()
    max_version_level: Int16 = field()
    allow_downgrade: Bool = until(0)
    upgrade_type: Int8 = since(1, default=1)


@request(ApiKey.UPDATE_FEATURES)
class UpdateFeaturesRequest(Message):
    timeout_ms: Int32 = field(default=60000)
    feature_updates: Array[FeatureUpdateKey] = field()
    validate_only: Bool = since(1)


@struct
class UpdatableFeatureResult(Struct):
    feature: String = field()
    error_code: Int16 = field()
    error_message: NullableString = field()


@response(ApiKey.UPDATE_FEATURES)
class UpdateFeaturesResponse(Message):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    error_message: NullableString = field()
    results: Array[UpdatableFeatureResult] = until(1, ignorable=True)
