"""Builds what a TLS listener needs from its configuration: certificates, the context, and the names of clients."""
