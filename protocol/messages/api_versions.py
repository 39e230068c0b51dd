"""Declares ApiVersions (api 18): a broker lists the APIs and versions that it serves (KIP-35).

A request in an unknown version is answered in version 0. The response's header always has version 0.

- 3 carries the client's software name and version (KIP-511), and the features of the cluster as tagged fields (KIP-584).
- 4 allows a feature's minimum to be 0.
- 5 names the cluster and the broker that the client expects to reach (KIP-1242).
"""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import (
    Array,
    Bool,
    Int16,
    Int32,
    Int64,
    Message,
    NullableString,
    String,
    Struct,
    field,
    request,
    response,
    since,
    struct,
)


@request(ApiKey.API_VERSIONS)
class ApiVersionsRequest(Message):
    client_software_name: String = since(3, ignorable=True)
    client_software_version: String = since(3, ignorable=True)
    cluster_id: NullableString = since(5, default=None, ignorable=True)
    node_id: Int32 = since(5, default=-1, ignorable=True)


@struct
class ApiVersion(Struct):
    api_key: Int16 = field()
    min_version: Int16 = field()
    max_version: Int16 = field()


@struct
class SupportedFeatureKey(Struct):
    name: String = field()
    min_version: Int16 = field()
    max_version: Int16 = field()


@struct
class FinalizedFeatureKey(Struct):
    name: String = field()
    max_version_level: Int16 = field()
    min_version_level: Int16 = field()


@response(ApiKey.API_VERSIONS)
class ApiVersionsResponse(Message):
    error_code: Int16 = field()
    api_keys: Array[ApiVersion] = field()
    throttle_time_ms: Int32 = since(1, ignorable=True)
    supported_features: Array[SupportedFeatureKey] = since(3, ignorable=True, tag=0)
    finalized_features_epoch: Int64 = since(3, default=-1, ignorable=True, tag=1)
    finalized_features: Array[FinalizedFeatureKey] = since(3, ignorable=True, tag=2)
    zk_migration_ready: Bool = since(3, ignorable=True, tag=3)
