"""Runs the tasks of tiered storage on the replicas of this broker (KIP-405): leaders copy and remove segments, followers learn of them."""
