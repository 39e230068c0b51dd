"""Runs the S3 servers that tests of the remote store use: moto in every run, and versitygw in `make soak` where Go can compile it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol
from urllib.request import Request, urlopen
from xml.etree import ElementTree

import pytest

from tests.support.moto_server import SIGNED, a_moto_server, forget_buckets, make_bucket
from tests.support.versitygw import NoVersitygwError, a_versitygw, bucket_folder

KINDS: Final = ["moto", pytest.param("versitygw", marks=pytest.mark.soak)]
"""The parameters of a fixture that runs each of them. versitygw checks signatures and checksums."""


class S3Server(Protocol):
    """A running server. All of them accept the credentials of `s3_keys`."""

    url: str

    def make_bucket(self, bucket: str) -> None:
        """Creates a bucket."""

    def forget_buckets(self) -> None:
        """Removes all buckets and their objects."""

    def keys(self, bucket: str) -> list[str]:
        """Names the objects of a bucket."""


@contextmanager
def an_s3_server(kind: str, directory: Path, *buckets: str) -> Iterator[S3Server]:
    """A server of a kind, with its files below the directory if it has some. Skips the test if the server cannot be had."""
    if kind == "moto":
        with a_moto_server(*buckets) as url:
            yield _Moto(url)
        return
    directory.mkdir(parents=True, exist_ok=True)
    try:
        with a_versitygw(directory, *buckets) as url:
            yield _Versitygw(url, directory)
    except NoVersitygwError as missing:
        pytest.skip(str(missing))


class _Moto:
    def __init__(self, url: str) -> None:
        self.url = url

    def make_bucket(self, bucket: str) -> None:
        make_bucket(self.url, bucket)

    def forget_buckets(self) -> None:
        forget_buckets(self.url)

    def keys(self, bucket: str) -> list[str]:
        with urlopen(Request(f"{self.url}/{bucket}?list-type=2", headers=SIGNED)) as answer:
            tree = ElementTree.fromstring(answer.read())
        return [element.text or "" for element in tree.iter() if element.tag.rpartition("}")[2] == "Key"]


class _Versitygw:
    """Its buckets are folders, and its objects files, so no request need be signed here."""

    def __init__(self, url: str, directory: Path) -> None:
        self.url = url
        self._directory = directory

    def make_bucket(self, bucket: str) -> None:
        bucket_folder(self._directory, bucket).mkdir()

    def forget_buckets(self) -> None:
        for bucket in bucket_folder(self._directory, "").iterdir():
            shutil.rmtree(bucket)

    def keys(self, bucket: str) -> list[str]:
        folder = bucket_folder(self._directory, bucket)
        found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
        return [str(path) for path in found if not path.parts[0].startswith(".")]
