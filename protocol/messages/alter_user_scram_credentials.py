"""Declares AlterUserScramCredentials (api 51, KIP-554): a client sets or deletes the SCRAM credentials of users.

The client salts and hashes the password; the broker stores the result.
"""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import (
    Array,
    Bytes,
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
    struct,
)


@struct
class ScramCredentialDeletion(Struct):
    name: String = field()
    mechanism: Int8 = field()


@struct
class ScramCredentialUpsertion(Struct):
    """`mechanism` is 1 for SCRAM-SHA-256, 2 for SCRAM-SHA-512."""

    name: String = field()
    mechanism: Int8 = field()
    iterations: Int32 = field()
    salt: Bytes = field()
    salted_password: Bytes = field()


@request(ApiKey.ALTER_USER_SCRAM_CREDENTIALS)
class AlterUserScramCredentialsRequest(Message):
    deletions: Array[ScramCredentialDeletion] = field()
    upsertions: Array[ScramCredentialUpsertion] = field()


@struct
class AlterUserScramCredentialsResult(Struct):
    user: String = field()
    error_code: Int16 = field()
    error_message: NullableString = field()


@response(ApiKey.ALTER_USER_SCRAM_CREDENTIALS)
class AlterUserScramCredentialsResponse(Message):
    throttle_time_ms: Int32 = field()
    results: Array[AlterUserScramCredentialsResult] = field()
