"""Connects tiered storage to the cluster and to the requests of clients: the metadata topic, stores, and reads of remote segments."""
