"""Coordinates transactions: state machines of transactional ids, markers, expiration, verification."""
