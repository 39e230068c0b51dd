"""Reads and builds record batches: headers, records, checksums, compression."""
