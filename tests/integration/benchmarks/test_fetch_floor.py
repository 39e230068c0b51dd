"""The program that brokers' fetches are held against answers as a broker does, with parts of the file."""

import random
import shutil
import socket
import struct
from pathlib import Path

import pytest

from benchmarks import fetch_floor, frames

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler on the PATH: install gcc")

STEP = 16_343
HEAD = 94
TAIL = 3


@pytest.mark.parametrize("body", [STEP, 4 * STEP, 64 * STEP])
def test_the_floor_answers_every_request_in_order_with_a_part_of_the_file(tmp_path: Path, body: int) -> None:
    data = random.Random(5).randbytes(80 * STEP)
    source = tmp_path / "segment.log"
    source.write_bytes(data)
    asked = bytearray(frames.fetch(b"i" * 16, 0, 0, body))
    with (
        fetch_floor.floor_server(source, STEP, body, HEAD, None) as floor,
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
