"""Lists, adds and removes users who authenticate by SCRAM. KIP-554.

The password stays here: the broker gets a salted hash.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from typing import Final, NamedTuple

from ottla.client.cluster import Cluster, ClusterChange
from ottla.client.errors import ClientError, Refused, check
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from ottla.protocol.scram_salts import SALT_BYTES, salt_of

MECHANISMS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
_HASHES: Final = {1: "sha256", 2: "sha512"}
_NAMES: Final = {number: name for name, number in MECHANISMS.items()}
MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16384


class Credential(NamedTuple):
    """One credential of a user."""

    user: str
    mechanism: str
    iterations: int


class NewCredential(NamedTuple):
    """A credential to store. `mechanism` is the number of the protocol."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


def new_credential(user: str, mechanism: str, password: str, iterations: int = MIN_ITERATIONS, salt: bytes | None = None) -> NewCredential:
    """Salt and hash a password (RFC 5802); by default with a new random salt."""
    salt = salt_of(os.urandom(SALT_BYTES)) if salt is None else salt
    number = MECHANISMS[mechanism]
    return NewCredential(user, number, iterations, salt, hashlib.pbkdf2_hmac(_HASHES[number], password.encode(), salt, iterations))


def list_users(cluster: Cluster, names: Sequence[str] = ()) -> list[Credential]:
    """The credentials of all users, or of those named, sorted. Raises Refused, also for a user that does not exist."""
    request = DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in names] or None)

    def attempt() -> list[Credential]:
        answer = cluster.ask(cluster.controller, request, DescribeUserScramCredentialsResponse)
        check("the users", answer.error_code, answer.error_message)
        for result in answer.results:
            check(f"user {result.user}", result.error_code, result.error_message)
        return sorted(
            Credential(result.user, _NAMES.get(info.mechanism, str(info.mechanism)), info.iterations)
            for result in answer.results
            for info in result.credential_infos
        )

    return cluster.until_done(attempt)


def alter_users(
    cluster: Cluster, stored: Sequence[NewCredential], deleted: Sequence[tuple[str, int]] = ()
) -> dict[str, ClientError | None]:
    """Store and delete credentials: for each user the error, or None. `deleted` has user and number of the mechanism each."""
    request = AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name=name, mechanism=mechanism) for name, mechanism in deleted],
        upsertions=[
            ScramCredentialUpsertion(
                name=each.user,
                mechanism=each.mechanism,
                iterations=each.iterations,
                salt=each.salt,
                salted_password=each.salted_password,
            )
            for each in stored
        ],
    )

    change = ClusterChange(cluster, request, AlterUserScramCredentialsResponse, ErrorCode.RESOURCE_NOT_FOUND)

    def attempt() -> dict[str, ClientError | None]:
        results = change.ask(cluster.controller).results
        if any(each.error_code == ErrorCode.NOT_CONTROLLER for each in results):
            raise Refused("the controller", ErrorCode.NOT_CONTROLLER)
        return {
            each.user: change.explained(Refused(f"user {each.user}", each.error_code, each.error_message)) if each.error_code else None
            for each in results
        }

    return cluster.until_done(attempt)
