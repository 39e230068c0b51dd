"""Has the version numbers of OffsetCommit that its compiled readers and handlers share."""

from typing import Final

FIRST_WITH_TOPIC_IDS: Final = 10
"""From this version on a request names topics by their ids (KIP-848)."""
