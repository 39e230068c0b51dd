"""Names the internal topics, which the broker itself writes."""

from typing import Final

GROUP_METADATA_TOPIC: Final = "__consumer_offsets"
TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
SHARE_STATE_TOPIC: Final = "__share_group_state"
INTERNAL_TOPICS: Final = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_STATE_TOPIC})
