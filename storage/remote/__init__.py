"""Keeps closed segments in a remote store (KIP-405): what is known of them, which are copied and removed, and where their bytes lie."""
