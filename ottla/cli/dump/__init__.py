"""Implements `ottla dump-log`: `text` prints files as Apache Kafka's DumpLogSegments does, `directory_check` verifies a
directory.

All modules only read, never lock and never repair, so the directory of a running broker may be examined.
"""
