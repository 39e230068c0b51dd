"""Reads and writes `partition.metadata` of a partition's directory, which has the id of its topic, because names may be
reused.

    version: 0
    topic_id: qu0XZ0mpQXC8sQdtzpMmUw
"""

import base64
import binascii
import logging
import re
from collections.abc import Iterable

from ottla.storage.disk.checkpoint import replace_file
from ottla.storage.disk.directory_names import DirectoryKind, parse_directory_name
from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.errors import CorruptCheckpoint

log = logging.getLogger(__name__)

PARTITION_METADATA = "partition.metadata"
ZERO_UUID = bytes(16)
_CONTENT = re.compile(r"version:\s+\d+\r?\ntopic_id:[^\S\n]+(\S*)")
"""Of any version, because Apache Kafka also reads the files of later releases (3.9's PartitionMetadataReadBuffer)."""


def read_topic_id(filesystem: FileSystem, directory: str) -> bytes | None:
    """The topic id, None when there is no file. Raises CorruptCheckpoint."""
    path = f"{directory}/{PARTITION_METADATA}"
    try:
        data = filesystem.read_file(path)
    except FileNotFoundError:
        return None
    if not data.strip(b"\0"):
        # A power cut came after the partition was created and before the file was durable: the controller will send the
        # id again.
        log.warning(
            "%s is empty: a power cut came right after the partition was created; the controller will send the topic id again", path
        )
        return None
    found = _CONTENT.match(data.decode("ascii", "replace"))
    if found is None:
        raise CorruptCheckpoint(path, "it does not begin with `version: 0` and `topic_id: ...`")
    try:
        topic_id = base64.urlsafe_b64decode(found[1] + "==")
    except (ValueError, binascii.Error):
        topic_id = b""
    if len(topic_id) != 16 or topic_id == ZERO_UUID:
        raise CorruptCheckpoint(path, f"`{found[1]}` is not a topic id")
    return topic_id


def stray_topic_ids(filesystem: FileSystem, log_dirs: Iterable[str]) -> set[bytes]:
    """The topic ids of the replicas that were set aside in these log directories. Blocks; raises OSError."""
    found: set[bytes] = set()
    for log_dir in log_dirs:
        for name in filesystem.list_directory(log_dir):
            parsed = parse_directory_name(name)
            if parsed is None or parsed[1] is not DirectoryKind.STRAY:
                continue
            try:
                topic_id = read_topic_id(filesystem, f"{log_dir}/{name}")
            except CorruptCheckpoint as error:
                log.warning("%s", error)
                continue
            if topic_id is not None:
                found.add(topic_id)
    return found


def write_topic_id(filesystem: FileSystem, directory: str, topic_id: bytes, *, sync: bool = True) -> None:
    """Writes the file as Apache Kafka does, without a final newline. Without `sync`, it only survives a kill of the
    process."""
    replace_file(filesystem, f"{directory}/{PARTITION_METADATA}", encode_topic_id(topic_id), sync=sync)


def encode_topic_id(topic_id: bytes) -> bytes:
    """The content of the file."""
    return f"version: 0\ntopic_id: {base64.urlsafe_b64encode(topic_id).decode().rstrip('=')}".encode()
