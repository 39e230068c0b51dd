"""Messages between a broker and its store process arrive as they were sent, however they are cut; and none is read of another version."""

import errno
import pickle
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.remote import store_messages
from ottla.broker.remote.objects import _Exists
from ottla.broker.remote.store_messages import (
    Answer,
    LogLine,
    MalformedMessage,
    MessageReader,
    Op,
    OtherVersion,
    Request,
    encoded,
    error_of,
    failure_of,
    hello,
)
from ottla.config.errors import ConfigError, ConfigValueError
from ottla.storage.remote.batch_checks import CorruptChunk
from ottla.storage.remote.chunk_checks import Border, Checked, ChunkCheck
from ottla.storage.remote.ports import (
    IndexKind,
    RemoteObjectDamaged,
    RemoteObjectMissing,
    RemoteStoreDenied,
    RemoteStoreError,
    StoreClockApart,
    StoredObject,
)
from tests.support.remote_stores import KEY_RING, an_entry, directory_settings, object_settings, segment_files

HELLO = b"ottla store 0\n"

MESSAGES = st.lists(
    st.one_of(
        st.tuples(st.integers(0, 1 << 70), st.sampled_from(Op), st.tuples(st.text(), st.binary(max_size=300))).map(Request._make),
        st.tuples(st.integers(0, 1 << 40), st.binary(max_size=5000), st.none()).map(Answer._make),
        st.tuples(st.text(), st.integers(0, 50), st.text()).map(LogLine._make),
    ),
    max_size=6,
)


@given(MESSAGES, st.data())
def test_messages_arrive_however_their_bytes_are_cut(messages: list[Request | Answer | LogLine], data: st.DataObject) -> None:
    sent = HELLO + b"".join(encoded(each) for each in messages)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=20)))
    reader = MessageReader(HELLO)

    found = [message for begin, end in zip([0, *cuts], [*cuts, len(sent)], strict=True) for message in reader.feed(sent[begin:end])]

    assert found == messages
    assert [type(each) for each in found] == [type(each) for each in messages]


def test_messages_arrive_byte_by_byte() -> None:
    sent = HELLO + encoded(Answer(1, b"x" * 1000)) + encoded(Answer(2, None))
    reader = MessageReader(HELLO)
    assert [message for at in range(len(sent)) for message in reader.feed(sent[at : at + 1])] == [Answer(1, b"x" * 1000), Answer(2, None)]


SPRUNG: list[str] = []


def spring() -> None:
    SPRUNG.append("read")


class Trap:
    """An object that is noticed when it is read."""

    def __reduce__(self) -> tuple[object, tuple[()]]:
        return spring, ()


@pytest.mark.parametrize("cut", [1, 5, len(HELLO) - 1, len(HELLO), 1000])
def test_nothing_is_read_of_an_end_of_another_version(cut: int) -> None:
    data = pickle.dumps(Trap())
    sent = HELLO[:-2] + b"1\n" + struct.pack(">I", len(data)) + data
    reader = MessageReader(HELLO)
    SPRUNG.clear()

    with pytest.raises(OtherVersion):
        for begin in range(0, len(sent), cut):
            reader.feed(sent[begin : begin + cut])

    assert not SPRUNG
    MessageReader(HELLO[:-2] + b"1\n").feed(sent)
    assert SPRUNG


def test_a_length_that_no_message_has_is_refused() -> None:
    with pytest.raises(MalformedMessage):
        MessageReader(HELLO).feed(HELLO + b"\xff\xff\xff\xff")


def test_a_message_that_is_too_long_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_messages, "MAX_MESSAGE_BYTES", 100)
    encoded(Answer(1, b"x" * 20))
    with pytest.raises(MalformedMessage):
        encoded(Answer(1, b"x" * 200))


def test_everything_that_calls_are_made_of_can_be_sent(tmp_path: Path) -> None:
    entry = an_entry(0, 99, 1000)
    check = ChunkCheck(entry, 1000, 1, None, Border(900, 90), 2, 2, {900: 90})
    arguments = (
        entry,
        segment_files(tmp_path, b"records"),
        IndexKind.TRANSACTION,
        check,
        Checked({1: 2}, {3: Border(4, 5)}, {}),
        [StoredObject("a", 1)],
        directory_settings(tmp_path),
        object_settings({f"rsm.config.{name}": value for name, value in ({**KEY_RING, **_S3}).items()}),
    )
    (found,) = MessageReader(HELLO).feed(HELLO + encoded(Request(1, Op.CALL, arguments)))
    assert found.arguments == arguments


_S3 = {
    "storage.backend.class": "io.aiven.kafka.tieredstorage.storage.s3.S3Storage",
    "storage.s3.bucket.name": "bucket",
    "storage.s3.region": "us-east-1",
}


@pytest.mark.parametrize(
    "kind",
    [RemoteStoreError, RemoteObjectMissing, RemoteObjectDamaged, RemoteStoreDenied, StoreClockApart, CorruptChunk, ConfigError],
)
def test_the_errors_that_callers_distinguish_stay_what_they_are(kind: type[Exception]) -> None:
    found = error_of(failure_of(kind("the reason")))
    assert (type(found), str(found)) == (kind, "the reason")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.ENOENT, errno.EIO])
def test_an_error_of_the_disk_keeps_its_number_and_its_file(number: int) -> None:
    error = OSError(number, "the reason", "/the/file")
    found = error_of(failure_of(error))
    assert isinstance(found, OSError)
    assert (type(found), found.errno, found.strerror, found.filename) == (type(error), number, "the reason", "/the/file")


def test_an_error_of_the_disk_without_a_number_keeps_its_text() -> None:
    found = error_of(failure_of(OSError("it has become shorter")))
    assert (type(found), str(found)) == (OSError, "it has become shorter")


class Panic(BaseException):
    """As a panic of Rust arrives."""


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (_Exists("it is there"), RemoteStoreError, "it is there"),
        (ConfigValueError("key", 1, "Must be 2"), ConfigError, str(ConfigValueError("key", 1, "Must be 2"))),
        (Panic("index out of bounds"), RemoteStoreError, "Panic: index out of bounds"),
        (KeyError("name"), RemoteStoreError, "KeyError: 'name'"),
    ],
)
def test_all_other_errors_arrive_as_what_they_are_a_kind_of(error: BaseException, kind: type[Exception], text: str) -> None:
    found = error_of(failure_of(error))
    assert (type(found), str(found)) == (kind, text)


def test_the_first_bytes_are_the_same_in_all_processes_of_the_same_sources_only(tmp_path: Path) -> None:
    for name in ("broker/remote", "storage/remote", "config"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "storage" / "remote" / "entries.py").write_text("a = 1\n")
    first = store_messages._hello(tmp_path)
    assert first == store_messages._hello(tmp_path)
    assert len(first) == len(hello())
    assert first != hello()
    (tmp_path / "storage" / "remote" / "entries.py").write_text("a = 2\n")
    second = store_messages._hello(tmp_path)
    (tmp_path / "config" / "remote_store.py").write_text("b = 1\n")
    assert len({first, second, store_messages._hello(tmp_path)}) == 3
