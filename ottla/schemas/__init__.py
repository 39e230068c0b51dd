"""Decodes and encodes records by the schemas of a registry, for the console and for `ottla produce` and `ottla consume`.

schema_registry   requests schemas by their ids, and remembers them
avro, protobuf    the two binary encodings
proto_file        reads a .proto file
"""
