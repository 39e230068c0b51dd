"""Transfers a cluster's metadata from one store to another while no broker runs."""
