"""Handles ApiVersions (api 18), versions 0-5.

KIP-511: the client's software name and version from 3; an unknown version is answered in version 0. KIP-584: features from 3; their epoch
is the version of the znode /feature. KIP-1242: a client that expects another cluster or another broker has to bootstrap again, from 5.

In a cluster on ZooKeeper without a finalized feature the answer is that of Apache Kafka 3.9, which supports no feature there.
"""

import re
from typing import Final

from ottla.broker.request.context import RequestContext
from ottla.protocol import features
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from ottla.protocol.schema.fields import Versions

FIRST_VERSION_WITH_SOFTWARE_NAME = 3
LOWEST_LEVEL: Final = 1
"""Clients before 3.9 cannot read a supported level of 0 (KAFKA-17011). It is the absence of a feature."""
NO_NODE_ID: Final = -1
MAX_SOFTWARE_CHARS: Final = 128
"""Longest name and version of a client's software that are kept for metrics, characters; unauthenticated clients choose them."""
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle_api_versions(request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    """List the APIs and versions that this broker accepts, in the order in which Apache Kafka lists them."""
    if context.api_version >= FIRST_VERSION_WITH_SOFTWARE_NAME:
        name, version = request.client_software_name, request.client_software_version
        if not _SOFTWARE.fullmatch(name) or not _SOFTWARE.fullmatch(version):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        if (refused := _misdirection(request, context)) is not ErrorCode.NONE:
            return ApiVersionsResponse(error_code=refused)
        context.client.client_software_name = name[:MAX_SOFTWARE_CHARS]
        context.client.client_software_version = version[:MAX_SOFTWARE_CHARS]
    if context.client.sasl is not None:
        context.client.sasl.on_api_versions()
    finalized, listed = context.broker.cluster.features, context.broker.listed
    supported = features.IMPLEMENTED if listed.is_beyond_3_9 else {}
    return ApiVersionsResponse(
        error_code=ErrorCode.NONE,
        api_keys=[
            ApiVersion(api_key=key, min_version=versions.first, max_version=versions.last) for key, versions in listed.versions.items()
        ],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=LOWEST_LEVEL, max_version=highest) for name, highest in sorted(supported.items())
        ],
        finalized_features_epoch=finalized.epoch,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in sorted(finalized.levels.items())
        ],
    )


def _misdirection(request: ApiVersionsRequest, context: RequestContext) -> ErrorCode:
    """Whether the client has reached the broker that it expects. It has to name both the cluster and the broker, or neither."""
    if (request.cluster_id is None) != (request.node_id == NO_NODE_ID):
        return ErrorCode.INVALID_REQUEST
    here = context.broker.cluster_id, context.broker.broker_id
    if request.cluster_id is not None and (request.cluster_id, request.node_id) != here:
        return ErrorCode.REBOOTSTRAP_REQUIRED
    return ErrorCode.NONE


def unsupported_version_response(versions: Versions) -> ApiVersionsResponse:
    """The answer, in version 0, to a client with a newer ApiVersions: the versions of ApiVersions that it may use."""
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=versions.first, max_version=versions.last)],
    )
