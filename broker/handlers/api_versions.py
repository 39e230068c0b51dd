"""Handles ApiVersions (api 18), versions 0-4.

KIP-511: the client's software name and version from 3; an unknown version is answered in version 0. KIP-584: features from 3. In ZooKeeper
mode no feature is finalized, so the list is empty. Its epoch is the version of the znode /feature, which never changes.
"""

import re
from typing import Final

from ottla.broker.request.context import RequestContext
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.schema.fields import Versions

FIRST_VERSION_WITH_SOFTWARE_NAME = 3
VERSION_OF_FEATURE_ZNODE = 0
MAX_SOFTWARE_CHARS: Final = 128
"""Longest name and version of a client's software that are kept for metrics, characters; unauthenticated clients choose them."""
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle_api_versions(request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    """List the APIs and versions that this broker accepts, in the order in which Apache Kafka lists them."""
    if context.api_version >= FIRST_VERSION_WITH_SOFTWARE_NAME:
        name, version = request.client_software_name, request.client_software_version
        if not _SOFTWARE.fullmatch(name) or not _SOFTWARE.fullmatch(version):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        context.client.client_software_name = name[:MAX_SOFTWARE_CHARS]
        context.client.client_software_version = version[:MAX_SOFTWARE_CHARS]
    if context.client.sasl is not None:
        context.client.sasl.on_api_versions()
    return ApiVersionsResponse(
        error_code=ErrorCode.NONE,
        api_keys=[
            ApiVersion(api_key=key, min_version=versions.first, max_version=versions.last)
            for key, versions in context.broker.listed.versions.items()
        ],
        finalized_features_epoch=VERSION_OF_FEATURE_ZNODE,
    )


def unsupported_version_response(versions: Versions) -> ApiVersionsResponse:
    """The answer, in version 0, to a client with a newer ApiVersions: the versions of ApiVersions that it may use."""
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=versions.first, max_version=versions.last)],
    )
