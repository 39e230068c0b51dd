"""Reads and writes the delegation tokens in the metadata store. The part of Kafka's DelegationTokenManagerZk that concerns znodes.

Writes are conditional on the version that was read, so that a token that another broker removed does not come back. Each write includes a
notification for the other brokers.
"""

import asyncio
import logging
from collections.abc import Callable

from ottla.controller.errors import BadVersion, InvalidAdminRequest, NoNode, StoreError
from ottla.controller.store.metadata_store import Children, Create, Delete, Get, MetadataStore, Multi, SetData, Write, data_and_stat, names
from ottla.controller.znodes.pauses import slices
from ottla.controller.znodes.security import TOKEN_CHANGE_PREFIX, TOKEN_CHANGES, TOKENS, DelegationToken, decode_token, encode_token
from ottla.controller.znodes.znode_json import MalformedZNode

logger = logging.getLogger(__name__)

MAX_RETRIES = 10
"""Repetitions of a write that another broker was quicker than."""
MAX_TOKEN_BYTES = 512 * 1024
"""Largest node of a token, bytes; ZooKeeper closes the connection of a client that sends a node of 1 MiB."""


class TokenStore:
    """See the module."""

    def __init__(self, store: MetadataStore, retry_delay_s: Callable[[], float]) -> None:
        self._store = store
        self._retry_delay_s = retry_delay_s

    async def prepare(self) -> None:
        """Create the paths of tokens where they are missing. Raises StoreError."""
        for root in (TOKEN_CHANGES, TOKENS):
            await self._store.ensure_path(root)

    async def read(self, token_id: str) -> DelegationToken:
        """A token. Raises NoNode, other StoreErrors, MalformedZNode."""
        return (await self._read(token_id))[0]

    async def read_all(self) -> list[DelegationToken]:
        """All tokens. A token that cannot be read is logged and left out. Raises StoreError."""
        found = []
        listed = names((await self._store.pipeline([Children(TOKENS)]))[0])
        for some in slices([_path(each) for each in listed]):
            for path, outcome in zip(some, await self._store.pipeline([Get(path) for path in some]), strict=True):
                if isinstance(outcome, NoNode):
                    continue
                try:
                    found.append(decode_token(path, data_and_stat(outcome)[0]))
                except MalformedZNode as error:
                    logger.error("a delegation token is ignored: %s", error)
        return found

    async def create(self, token: DelegationToken) -> None:
        """Store a new token. Raises StoreError, and InvalidAdminRequest for a token with too many renewers."""
        data = encode_token(token)
        if len(data) > MAX_TOKEN_BYTES:
            raise InvalidAdminRequest(f"a delegation token with {len(token.renewers)} renewers is too large")
        await self._write(Create(_path(token.token_id), data), token.token_id)

    async def update(self, token_id: str, change: Callable[[DelegationToken], DelegationToken | None]) -> DelegationToken | None:
        """Replace a token by `change` of it, and return the new one; None deletes the token.

        Raises NoNode, other StoreErrors, MalformedZNode, and the errors of `change`, which is called again for each attempt.
        """
        attempts_left = 1 + MAX_RETRIES
        while True:
            present, version = await self._read(token_id)
            wanted = change(present)
            if wanted == present:
                return present
            path = _path(token_id)
            try:
                await self._write(Delete(path, version) if wanted is None else SetData(path, encode_token(wanted), version), token_id)
            except BadVersion:
                attempts_left -= 1
                if not attempts_left:
                    raise
                await asyncio.sleep(self._retry_delay_s())
            else:
                return wanted

    async def _write(self, write: Write, token_id: str) -> None:
        notification = Create(TOKEN_CHANGE_PREFIX, token_id.encode(), sequential=True)
        (outcome,) = await self._store.pipeline([Multi((write, notification))])
        if isinstance(outcome, StoreError):
            raise outcome

    async def _read(self, token_id: str) -> tuple[DelegationToken, int]:
        """The token and the version of its node."""
        path = _path(token_id)
        data, stat = data_and_stat((await self._store.pipeline([Get(path)]))[0])
        return decode_token(path, data), stat.version


def _path(token_id: str) -> str:
    return f"{TOKENS}/{token_id}"
