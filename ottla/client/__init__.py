"""Implements a small Kafka client for the commands: blocking, one thread, for Ottla and Apache Kafka. Imports only
`protocol` and `ottla.broker.security`.

  connection   one socket: negotiated versions, requests out, answers in
  cluster      bootstrap, metadata, leaders, coordinators, retries after a move
  reachable    many brokers at once, of which some may not answer
  producer, fetcher, group_member, offsets, and the administration of topics, groups and configs

Connections may use TLS and SASL. Errors are `ClientError`s, whose texts are for the user at the terminal.
"""
