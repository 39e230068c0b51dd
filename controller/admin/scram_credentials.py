"""Changes SCRAM credentials of users (KIP-554), which are configurations under /config/users. Kafka's
ZkAdminManager.alterUserScramCredentials.

A client sends the salted password, never the password. The stored values let a broker check a client, but do not let
their holder pass for the client (RFC 5802). Called by the request handler on the active controller's broker.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from ottla.controller.admin.config_admin import ConfigAdmin
from ottla.controller.errors import NoNode, StoreError
from ottla.controller.store.metadata_store import Create, Get, MetadataStore, data_and_stat
from ottla.controller.znodes.layout import can_name_a_node, sanitize
from ottla.controller.znodes.security import SCRAM_SECRET
from ottla.controller.znodes.znode_json import MalformedZNode
from ottla.pauses import pause
from ottla.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)

SECRET_BYTES: Final = 32
"""Random bytes in the secret for unknown users."""
MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16384
_HASHES: Final = {1: "sha256", 2: "sha512"}

IMPOSSIBLE_NAME: Final = (ErrorCode.INVALID_REQUEST, "Username must not be . or .., which ZooKeeper reads as steps of a path")
EMPTY_NAME: Final = (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
UNKNOWN_MECHANISM: Final = (ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
TOO_FEW: Final = (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
TOO_MANY: Final = (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
TWICE: Final = (ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")
MISSING: Final = (ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")

DONE: Final = (ErrorCode.NONE, "")
"""With an empty message instead of a null one, as in Apache Kafka."""

Outcome = tuple[ErrorCode, str]


class Deletion(NamedTuple):
    """A credential to delete."""

    user: str
    mechanism: int


class Upsertion(NamedTuple):
    """A credential to create or replace."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


async def secret_for_unknown_users(store: MetadataStore, random_bytes: Callable[[int], bytes]) -> bytes:
    """The secret by which all brokers of the cluster answer for users that do not exist. The first broker makes it.

    With a secret for each broker, the answers of two brokers would show which users exist. Raises StoreError.
    """
    (found,) = await store.pipeline([Get(SCRAM_SECRET)])
    if isinstance(found, NoNode):
        # Another broker may do the same at this moment: the secret that is stored afterwards is the cluster's.
        made = random_bytes(SECRET_BYTES).hex().encode()
        found = (await store.pipeline([Create(SCRAM_SECRET, made), Get(SCRAM_SECRET)]))[-1]
    return data_and_stat(found)[0] or b""


class _Missing(Exception):
    """A credential to delete does not exist."""


async def alter_scram_credentials(
    admin: ConfigAdmin, deletions: Sequence[Deletion], upsertions: Sequence[Upsertion]
) -> list[tuple[str, Outcome]]:
    """The outcome for each user, errors first: either all changes of a user are made, or none."""
    refused: dict[str, Outcome] = {}
    for deletion in deletions:
        await pause()
        if not deletion.user:
            refused[""] = EMPTY_NAME
        elif not can_name_a_node(sanitize(deletion.user)):
            refused[deletion.user] = IMPOSSIBLE_NAME
        elif deletion.mechanism not in MECHANISMS:
            refused[deletion.user] = UNKNOWN_MECHANISM
    for upsertion in upsertions:
        await pause()
        outcome = _refusal(upsertion)
        if outcome is not None:
            refused[upsertion.user] = outcome
    of_user: dict[str, tuple[list[Deletion], list[Upsertion]]] = {}
    named: set[tuple[str, int]] = set()
    twice: dict[str, Outcome] = {}
    changes: list[Deletion | Upsertion] = [*upsertions, *deletions]
    for each in changes:
        await pause()
        if each.user in refused:
            continue
        its_deletions, its_upsertions = of_user.setdefault(each.user, ([], []))
        if isinstance(each, Deletion):
            its_deletions.append(each)
        else:
            its_upsertions.append(each)
        if (each.user, each.mechanism) in named:
            twice[each.user] = TWICE
        named.add((each.user, each.mechanism))
    refused |= twice
    done: list[tuple[str, Outcome]] = []
    for user, of_one in of_user.items():
        await pause()
        if user in refused:
            continue
        change = partial(_changed, *of_one)
        try:
            await admin.alter_entity_config("users", sanitize(user), change)
            done.append((user, DONE))
        except _Missing:
            refused[user] = MISSING
        except (StoreError, MalformedZNode) as error:
            logger.error("the credentials of user %s cannot be changed: %s", user, error)
            refused[user] = ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR.message
    return [*refused.items(), *done]


def _refusal(upsertion: Upsertion) -> Outcome | None:
    if not upsertion.user:
        return EMPTY_NAME
    if not can_name_a_node(sanitize(upsertion.user)):
        return IMPOSSIBLE_NAME
    if upsertion.mechanism not in MECHANISMS:
        return UNKNOWN_MECHANISM
    if upsertion.iterations > MAX_ITERATIONS:
        return TOO_MANY
    return TOO_FEW if upsertion.iterations < MIN_ITERATIONS else None


def _changed(deletions: Sequence[Deletion], upsertions: Sequence[Upsertion], current: dict[str, str]) -> dict[str, str]:
    for deletion in deletions:
        if current.pop(MECHANISMS[deletion.mechanism], None) is None:
            raise _Missing
    for upsertion in upsertions:
        current[MECHANISMS[upsertion.mechanism]] = credential(upsertion)
    return current


def credential(upsertion: Upsertion) -> str:
    """The credential in its stored form."""
    name = _HASHES[upsertion.mechanism]
    client_key = hmac.digest(upsertion.salted_password, b"Client Key", name)
    server_key = hmac.digest(upsertion.salted_password, b"Server Key", name)
    parts = {"salt": upsertion.salt, "stored_key": hashlib.new(name, client_key).digest(), "server_key": server_key}
    encoded = ",".join(f"{field}={base64.b64encode(value).decode('ascii')}" for field, value in parts.items())
    return f"{encoded},iterations={upsertion.iterations}"
