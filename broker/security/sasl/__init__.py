"""Authenticates clients by SASL mechanisms: pure exchanges of tokens, without network."""
