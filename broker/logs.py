"""Formats the broker's log lines: time, level, event, and the module that logs it."""

import logging
import sys


def set_up_logging(level: int = logging.INFO) -> None:
    """Log to standard error. The command line calls this once; a broker inside another program uses that program's logging."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("[%(asctime)s,%(msecs)03d] %(levelname)s %(message)s (%(name)s)", "%Y-%m-%d %H:%M:%S"))
    logging.basicConfig(level=level, handlers=[handler])
