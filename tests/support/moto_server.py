"""Runs moto, an S3 in Python, in a thread of the test's process."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import Request, urlopen

KEY_ID = "test"
ACCESS_KEY = "moto-secret"


@contextmanager
def a_moto_server(*buckets: str) -> Iterator[str]:
    """The address of an S3 that has these buckets. A process has them once, so a new server forgets those of the former ones."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # otherwise a line for each request
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        url = f"http://{host}:{port}"
        forget_buckets(url)
        for bucket in buckets:
            make_bucket(url, bucket)
        yield url
    finally:
        server.stop()


def make_bucket(url: str, bucket: str) -> None:
    """Creates a bucket."""
    with urlopen(Request(f"{url}/{bucket}", method="PUT", headers=SIGNED)) as answer:
        assert answer.status == 200


def forget_buckets(url: str) -> None:
    """Removes all buckets and their objects."""
    with urlopen(Request(f"{url}/moto-api/reset", method="POST")) as answer:
        assert answer.status == 200


SIGNED = {"Authorization": f"AWS4-HMAC-SHA256 Credential={KEY_ID}/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=x"}
"""Signs nothing, and moto does not look."""


def s3_keys(url: str, bucket: str = "bucket", **more: str) -> dict[str, str]:
    """The keys of a broker whose remote store is this bucket."""
    keys = {
        "storage.backend.class": "io.aiven.kafka.tieredstorage.storage.s3.S3Storage",
        "storage.s3.bucket.name": bucket,
        "storage.s3.region": "us-east-1",
        "storage.s3.endpoint.url": url,
        "storage.s3.path.style.access.enabled": "true",
        "storage.aws.access.key.id": KEY_ID,
        "storage.aws.secret.access.key": ACCESS_KEY,
        **more,
    }
    return {f"rsm.config.{name}": value for name, value in keys.items()}
