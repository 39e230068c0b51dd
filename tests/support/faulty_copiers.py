"""Copiers with one fault each, for `ottla.validate`: `python -m tests.support.faulty_copiers` runs the one that FAULT names."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from ottla.validate.copying.copier import Copier, Row, main


class CommitsOutside(Copier):
    """Commits its offsets outside of the transaction: they stay when it is aborted."""

    def send_offsets(self, rows: Sequence[Row]) -> None:
        self.consumer.commit(offsets=self.offsets_behind(rows), asynchronous=False)


class CommitsWhatItShouldAbort(Copier):
    """Never aborts."""

    def abort_on_purpose(self, rows: Sequence[Row]) -> None:
        self.send_offsets(rows)
        self.producer.commit_transaction(30)


class Fails(Copier):
    """Ends at once with an error."""

    def run(self, over: object) -> None:
        self.producer.commit_transaction(1)  # there is none


FAULTS = {kind.__name__: kind for kind in (CommitsOutside, CommitsWhatItShouldAbort, Fails)}

if __name__ == "__main__":
    sys.exit(main(FAULTS[os.environ["FAULT"]]))
