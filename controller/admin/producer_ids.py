"""Allocates blocks of 1000 producer ids to brokers; /latest_producer_id_block holds the last one allocated."""

from ottla.controller.errors import BadVersion, ProducerIdsExhausted
from ottla.controller.store.metadata_store import MetadataStore
from ottla.controller.znodes.changes import ProducerIdBlock, decode_producer_id_block, encode_producer_id_block
from ottla.controller.znodes.layout import PRODUCER_ID_BLOCK

BLOCK_SIZE = 1000
MAX_PRODUCER_ID = 2**63 - 1


async def allocate_block(store: MetadataStore, broker_id: int) -> ProducerIdBlock:
    """The next block, for `broker_id`. No id is allocated twice, even if the answer is lost. Raises
    ProducerIdsExhausted."""
    while True:
        data, stat = await store.get(PRODUCER_ID_BLOCK)
        last = decode_producer_id_block(data)
        first = 0 if last is None else last.last + 1
        if first > MAX_PRODUCER_ID - BLOCK_SIZE:
            raise ProducerIdsExhausted(f"the last block of producer ids ends at {first - 1}; no block is left")
        block = ProducerIdBlock(broker_id, first, first + BLOCK_SIZE - 1)
        try:
            await store.set(PRODUCER_ID_BLOCK, encode_producer_id_block(block), stat.version)
        except BadVersion:
            continue
        return block
