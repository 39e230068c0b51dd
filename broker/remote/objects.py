"""Reaches the objects of S3, Google Cloud Storage and Azure Blob Storage by obstore; nothing else imports that.

obstore transfers in threads of its own. Each call has a time limit here, since that of obstore counts for each attempt. A missing bucket
looks like a missing object there, so the bucket is asked before an object counts as missing.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ottla.config.errors import ConfigError
from ottla.config.remote_store import AZURE, GCS, S3, StoreSettings
from ottla.storage.remote.ports import (
    RemoteObjectDamaged,
    RemoteObjectMissing,
    RemoteStoreAbsent,
    RemoteStoreDenied,
    RemoteStoreError,
    StoredObject,
)

if TYPE_CHECKING:
    from obstore.store import ObjectStore as AnyStore

PART_BYTES: Final = 8 << 20
"""Bytes of a part of a large upload."""
PARTS_AT_ONCE: Final = 2
COPY_BYTES: Final = PART_BYTES * PARTS_AT_ONCE
"""Memory that a copy takes."""
CALL_SECONDS: Final = 60.0
"""Time limit of a call that transfers little."""
SLOWEST_BYTES_PER_SECOND: Final = 1 << 20
"""The rate below which an upload has failed."""
CLOSE_SECONDS: Final = 5.0

_CLIENT: Final[dict[str, Any]] = {"connect_timeout": timedelta(seconds=5), "timeout": timedelta(seconds=30)}
_RETRY: Final[dict[str, Any]] = {"max_retries": 2, "retry_timeout": timedelta(seconds=20)}

_DENIED: Final = re.compile(
    r"status code: 40[13]\b|\b(?:AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken|AuthenticationFailed)\b"
)
"""Finds refused credentials in errors that obstore takes for others, such as those of a listing."""
_ABSENT: Final = re.compile(r"status code: (?:301|404)\b")
"""Finds a bucket that is not there, or in another region, in errors of a listing."""
_SHORT: Final = re.compile(r"status code: 416\b")
"""Finds that an object ends before a range begins. Of a range that begins earlier, stores send what there is."""
_DOCUMENT: Final = re.compile(r":? *<[?!a-zA-Z]")
"""Finds where the answer of a store begins in the text of an error."""
_MOST_TEXT: Final = 1000
"""A line of obstore names an object twice, and then says what happened."""
_SAID: Final = re.compile(r"<Code>([^<]{1,100})</Code>(?:\s*<Message>([^<\n]{1,200}))?")
"""Finds what such an answer, in XML, says."""

_Result = TypeVar("_Result")


class Objects:
    """The objects of one bucket or container. All methods raise RemoteStoreError and its kinds."""

    def __init__(self, store: AnyStore, bucket: str) -> None:
        import obstore
        from obstore.exceptions import (
            AlreadyExistsError,
            BaseError,
            NotFoundError,
            PermissionDeniedError,
            UnauthenticatedError,
        )

        self._obstore = obstore
        self._store = store
        self._bucket = bucket
        self._missing = (NotFoundError, FileNotFoundError)
        self._denied = (PermissionDeniedError, UnauthenticatedError, PermissionError)
        self._exists = (AlreadyExistsError, FileExistsError)
        self._errors = (BaseError, OSError)
        self._calls: set[asyncio.Task[Any]] = set()

    async def put(self, key: str, data: bytes) -> None:
        """Writes a small object, unless there is one of that name: it has the same content."""
        with contextlib.suppress(_Exists):
            await self._call(key, lambda: self._obstore.put_async(self._store, key, data, mode="create"))

    async def put_pieces(self, key: str, pieces: AsyncIterator[bytes], size: int) -> None:
        """Writes an object with pieces one after the other, at most about `size` bytes."""
        await self._call(
            key,
            lambda: self._obstore.put_async(self._store, key, pieces, chunk_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE),
            more_seconds=size / SLOWEST_BYTES_PER_SECOND,
        )

    async def get(self, key: str, most: int) -> bytes:
        """Reads an object of at most `most` bytes."""

        async def read() -> bytes:
            found = await self._obstore.get_async(self._store, key)
            if found.meta["size"] > most:
                raise RemoteStoreError(f"{self._bucket}/{key} has {found.meta['size']} bytes, more than {most}")
            return bytes(await found.bytes_async())

        return await self._call(key, read)

    async def get_range(self, key: str, start: int, end: int) -> memoryview:
        """Reads the bytes [start, end) of an object; exactly as many, or it raises.

        They stay where obstore has put them: to copy 4 MiB takes the event loop 2 ms where the memory is new.
        """
        data = await self.get_beginning(key, start, end)
        if len(data) != end - start:
            raise RemoteObjectMissing(f"{self._bucket}/{key} has {len(data)} bytes from {start} on, and {end - start} were expected")
        return data

    async def get_beginning(self, key: str, start: int, end: int) -> memoryview:
        """Reads the bytes [start, end) of an object, which may end before."""
        return memoryview(await self._call(key, lambda: self._obstore.get_range_async(self._store, key, start=start, end=end)))

    async def delete(self, key: str) -> None:
        """Removes an object; done, too, if the bucket answers that there is none."""
        with contextlib.suppress(RemoteObjectMissing):
            await self._call(key, lambda: self._obstore.delete_async(self._store, key))

    async def written_at_ms(self, key: str) -> int:
        """Writes a small object anew, and returns the time that the store notes for it, by its own clock."""
        await self._call(key, lambda: self._obstore.put_async(self._store, key, b"\n"))
        found = await self._call(key, lambda: self._obstore.head_async(self._store, key))
        return _ms(found["last_modified"])

    async def probe(self) -> None:
        """Raises if the bucket cannot be reached, does not exist, or refuses the credentials."""
        await self._call("", lambda: self._obstore.list_with_delimiter_async(self._store, prefix="ottla-probe"), asks_bucket=False)

    async def list(self, folder: str | None) -> AsyncIterator[StoredObject]:
        """Shows the objects below a folder, or all."""
        stream = self._obstore.list(self._store, prefix=folder, chunk_size=1000)
        batches = stream.__aiter__()
        while True:
            try:
                batch = await self._call(folder or "", batches.__anext__)
            except StopAsyncIteration:
                return
            for meta in batch:
                yield StoredObject(meta["path"], _ms(meta["last_modified"]))

    async def close(self) -> None:
        """Ends calls in progress."""
        for call in self._calls:
            call.cancel()
        if self._calls:
            await asyncio.wait(self._calls, timeout=CLOSE_SECONDS)

    async def _call(
        self, key: str, begin: Callable[[], Awaitable[_Result]], *, more_seconds: float = 0, asks_bucket: bool = True
    ) -> _Result:
        task = asyncio.current_task()
        assert task is not None
        where = f"{self._bucket}/{key}"
        seconds = CALL_SECONDS + more_seconds
        is_outer = task not in self._calls
        self._calls.add(task)
        try:
            async with asyncio.timeout(seconds):
                return await begin()
        except TimeoutError:
            raise RemoteStoreError(f"{where}: no answer within {seconds:.0f} s") from None
        except self._missing as error:
            if asks_bucket:
                await self.probe()
                raise RemoteObjectMissing(f"{where} is missing") from None
            raise RemoteStoreAbsent(f"{where}: {_reason(error)}") from None
        except self._exists:
            raise _Exists(where) from None
        except self._denied as error:
            raise RemoteStoreDenied(f"{where}: {_reason(error)}") from None
        except self._errors as error:
            text = str(error)
            kinds = {_DENIED: RemoteStoreDenied, _SHORT: RemoteObjectDamaged, _ABSENT: RemoteStoreAbsent}
            kind = next((kind for pattern, kind in kinds.items() if pattern.search(text)), RemoteStoreError)
            raise kind(f"{where}: {_reason(error)}") from None
        finally:
            if is_outer:
                self._calls.discard(task)


class _Exists(RemoteStoreError):
    """An object of that name exists already."""


def _ms(time: datetime) -> int:
    return int(time.timestamp() * 1000)


def _reason(error: Exception) -> str:
    """The line of obstore, without the document and the debug form behind it, and the answer of the store that is in the document."""
    text = str(error).strip() or type(error).__name__
    line = _DOCUMENT.split(text, 1)[0].splitlines()[0][:_MOST_TEXT]
    said = _SAID.search(text, 0, 4000)
    return line if said is None else ": ".join((line, *filter(None, said.groups()))).removesuffix(".")


def open_objects(settings: StoreSettings) -> Objects:
    """Opens the store of the settings, without asking it. Raises ConfigError for what obstore refuses, or if obstore is missing.

    Objects are signed without their contents where TLS protects those, as the SDKs of AWS do: the SHA-256 of a copy takes half of its
    processor time.
    """
    try:
        from obstore.exceptions import BaseError
        from obstore.store import AzureStore, GCSStore, S3Store
    except ImportError:
        raise ConfigError(f"{settings.backend} needs obstore: pip install 'ottla[tiered]'") from None
    options = settings.options
    client = dict(_CLIENT)
    try:
        if settings.backend == S3:
            insecure = _insecure(options.get("s3.endpoint.url"), options.get("aws.certificate.check.enabled"))
            client |= insecure
            bucket = str(options["s3.bucket.name"])
            named = _renamed(options, _OF_S3)
            named["unsigned_payload"] = not insecure
            if (is_path_style := options.get("s3.path.style.access.enabled")) is not None:
                named["virtual_hosted_style_request"] = not is_path_style
            return Objects(S3Store(bucket, client_options=client, retry_config=_RETRY, **named), bucket)  # type: ignore[arg-type]  # named by keys
        if settings.backend == GCS:
            client |= _insecure(options.get("gcs.endpoint.url"), None)
            bucket = str(options["gcs.bucket.name"])
            return Objects(GCSStore(bucket, client_options=client, retry_config=_RETRY, **_renamed(options, _OF_GCS)), bucket)  # type: ignore[arg-type]  # named by keys
        assert settings.backend == AZURE
        client |= _insecure(options.get("azure.endpoint.url"), None)
        bucket = str(options["azure.container.name"])
        return Objects(AzureStore(bucket, client_options=client, retry_config=_RETRY, **_renamed(options, _OF_AZURE)), bucket)  # type: ignore[arg-type]  # named by keys
    except (ValueError, TypeError, OSError, BaseError) as error:
        raise ConfigError(f"{settings.backend}: {_reason(error)}") from None


_OF_S3: Final = {
    "s3.region": "region",
    "s3.endpoint.url": "endpoint",
    "aws.access.key.id": "access_key_id",
    "aws.secret.access.key": "secret_access_key",
}
_OF_GCS: Final = {
    "gcs.endpoint.url": "base_url",
    "gcs.credentials.path": "service_account_path",
    "gcs.credentials.json": "service_account_key",
}
_OF_AZURE: Final = {
    "azure.account.name": "account_name",
    "azure.account.key": "account_key",
    "azure.sas.token": "sas_key",
    "azure.endpoint.url": "endpoint",
}


def _renamed(options: Mapping[str, object], names: Mapping[str, str]) -> dict[str, Any]:
    return {name: options[key] for key, name in names.items() if key in options}


def _insecure(url: object, checks: object) -> dict[str, bool]:
    """The options for a store without TLS, or with a certificate that is not checked."""
    options = {"allow_http": True} if str(url or "").startswith("http://") else {}
    return options | ({"allow_invalid_certificates": True} if checks is False else {})
