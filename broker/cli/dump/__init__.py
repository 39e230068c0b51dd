"""What `ottla dump-log` does: `text` prints files as Apache Kafka's DumpLogSegments does, `check` looks whether a directory is sound.

Everything here only reads, never locks and never repairs, so a running broker may be looked at.
"""
