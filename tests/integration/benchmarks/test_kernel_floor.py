"""The programs that brokers are held against take and answer requests as a broker does."""

import os
import random
import shutil
import socket
import struct
from pathlib import Path

import pytest

from benchmarks.loads import frames
from benchmarks.paths import kernel_floor

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler on the PATH: install gcc")

STEP = 16_343
HEAD = 94
TAIL = 3


@pytest.mark.parametrize("body", [STEP, 4 * STEP, 64 * STEP])
def test_every_fetch_is_answered_in_order_with_a_part_of_the_file(tmp_path: Path, body: int) -> None:
    data = random.Random(5).randbytes(80 * STEP)
    source = tmp_path / "segment.log"
    source.write_bytes(data)
    asked = bytearray(frames.fetch(b"i" * 16, 0, 0, body))
    with (
        kernel_floor.fetch_floor(source, STEP, body, HEAD, None) as floor,
        socket.create_connection(("127.0.0.1", floor.port), timeout=60) as client,
        client.makefile("rb") as answers,
    ):
        for correlation_id in range(10):
            asked[8:12] = struct.pack(">i", correlation_id)
            client.sendall(asked)
        for correlation_id in range(10):
            answer = answers.read(HEAD + body + TAIL)
            assert struct.unpack_from(">ii", answer) == (len(answer) - 4, correlation_id)
            assert data.index(answer[HEAD : HEAD + body]) % STEP == 0
            assert answer[-TAIL:] == bytes(TAIL)


@pytest.mark.parametrize("batch_bytes", [1, STEP, 300_000, 1 << 20])
def test_every_produce_is_answered_in_order_and_its_bytes_are_in_the_file(tmp_path: Path, batch_bytes: int) -> None:
    size = frames.produce_answer_bytes("floor")
    asked = bytearray(frames.produce("floor", 0, random.Random(5).randbytes(batch_bytes)))
    with (
        kernel_floor.produce_floor(tmp_path, size, None) as floor,
        socket.create_connection(("127.0.0.1", floor.port), timeout=60) as client,
        client.makefile("rb") as answers,
    ):
        sent = b""
        for correlation_id in range(10):
            asked[8:12] = struct.pack(">i", correlation_id)
            client.sendall(asked)
            sent += asked[4:]
        for correlation_id in range(10):
            answer = answers.read(size)
            assert struct.unpack_from(">ii", answer) == (size - 4, correlation_id)
        files = [Path(f"/proc/{floor.pid}/fd/{each}") for each in os.listdir(f"/proc/{floor.pid}/fd")]
        written = [each.read_bytes() for each in files if each.is_file()]
        assert sent in written
