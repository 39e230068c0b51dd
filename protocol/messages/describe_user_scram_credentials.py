"""Declares DescribeUserScramCredentials (api 50, KIP-554): a broker gives mechanisms and iterations of users, never their secrets."""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import (
    Array,
    Int8,
    Int16,
    Int32,
    Message,
    NullableArray,
    NullableString,
    String,
    Struct,
    field,
    request,
    response,
    struct,
)


@struct
class UserName(Struct):
    name: String = field()


@request(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS)
class DescribeUserScramCredentialsRequest(Message):
    users: NullableArray[UserName] = field()


@struct
class CredentialInfo(Struct):
    mechanism: Int8 = field()
    iterations: Int32 = field()


@struct
class DescribeUserScramCredentialsResult(Struct):
    user: String = field()
    error_code: Int16 = field()
    error_message: NullableString = field()
    credential_infos: Array[CredentialInfo] = field()


@response(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS)
class DescribeUserScramCredentialsResponse(Message):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    error_message: NullableString = field()
    results: Array[DescribeUserScramCredentialsResult] = field()
