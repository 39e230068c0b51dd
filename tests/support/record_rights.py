"""Records the answers of Apache Kafka 3.9.1 in the grid of rights: `python -m tests.support.record_rights`.

It writes `tests/recorded/rights.jsonl`, a line for each request and set of rights, with the answer and the lines of the audit log.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from tests.support.apache_kafka import ApacheKafka, free_ports
from tests.support.rights_player import RightsPlayer, line_of, properties

RECORDING = Path(__file__).parents[1] / "recorded" / "rights.jsonl"


def main() -> None:
    """Start a broker, ask it everything, write the file."""
    (client_port,) = free_ports(1)
    with (
        tempfile.TemporaryDirectory() as directory,
        ApacheKafka(Path(directory), config_of=lambda _id, port: properties(port, client_port)),
        (Path(directory) / "broker-0.log").open(encoding="utf-8") as log,
    ):
        lines = [json.dumps(line_of(played)) for played in RightsPlayer(client_port, log.readlines).play()]
    RECORDING.parent.mkdir(exist_ok=True)
    RECORDING.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(lines)} answers in {RECORDING}")


if __name__ == "__main__":
    main()
