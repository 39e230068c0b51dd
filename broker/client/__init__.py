"""A small Kafka client for the commands: blocking, one thread, on `protocol` alone. It speaks to Ottla and to Apache Kafka.

    connection   one socket: negotiated versions, requests out, answers in
    cluster      bootstrap, metadata, leaders, coordinators, trying again after a move
    producer, fetcher, group_member, offsets, and the administration of topics, groups and configs

No SASL and no TLS. What can go wrong is a `ClientError` whose text is meant for the person at the terminal.
"""
