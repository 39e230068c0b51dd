"""Authenticates clients by SASL mechanisms: exchanges of tokens, without network code."""
