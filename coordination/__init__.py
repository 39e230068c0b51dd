"""Coordinates groups, shares and transactions: state machines over internal topics, which know no request and no connection."""

from ottla.protocol import compiled as compiled  # decides what the imports after it find
