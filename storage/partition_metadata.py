"""The file `partition.metadata` of a partition's directory: to which topic, of all that ever had that name, the log belongs.

version: 0
topic_id: qu0XZ0mpQXC8sQdtzpMmUw
"""

import base64
import binascii
import logging

from storage.checkpoint import replace_file
from storage.errors import CorruptCheckpoint
from storage.filesystem import FileSystem

log = logging.getLogger(__name__)

PARTITION_METADATA = "partition.metadata"
ZERO_UUID = bytes(16)
_VERSION = "version: 0"
_TOPIC_ID = "topic_id: "


def read_topic_id(filesystem: FileSystem, directory: str) -> bytes | None:
    """The topic's id, None when there is no file. Raises CorruptCheckpoint."""
    path = f"{directory}/{PARTITION_METADATA}"
    try:
        data = filesystem.read_file(path)
    except FileNotFoundError:
        return None
    if not data.strip(b"\0"):
        # Written when the partition was created, and a power cut came before it was durable: the controller tells the id again.
        log.warning("%s is empty: a power cut came right after the partition was created; its topic id is learned anew", path)
        return None
    lines = data.decode("ascii", "replace").split("\n")
    if lines[0] != _VERSION or len(lines) < 2 or not lines[1].startswith(_TOPIC_ID):
        raise CorruptCheckpoint(path, f"it does not begin with `{_VERSION}` and `{_TOPIC_ID}...`")
    try:
        topic_id = base64.urlsafe_b64decode(lines[1].removeprefix(_TOPIC_ID).strip() + "==")
    except (ValueError, binascii.Error):
        topic_id = b""
    if len(topic_id) != 16 or topic_id == ZERO_UUID:
        raise CorruptCheckpoint(path, f"`{lines[1]}` is no topic id")
    return topic_id


def write_topic_id(filesystem: FileSystem, directory: str, topic_id: bytes, *, sync: bool = True) -> None:
    """Writes the file as Apache Kafka does, without a newline at its end. Without `sync`, it survives a killed process only."""
    replace_file(filesystem, f"{directory}/{PARTITION_METADATA}", encode_topic_id(topic_id), sync=sync)


def encode_topic_id(topic_id: bytes) -> bytes:
    """What the file holds."""
    return f"{_VERSION}\n{_TOPIC_ID}{base64.urlsafe_b64encode(topic_id).decode().rstrip('=')}".encode()
