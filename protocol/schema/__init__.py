"""Compiles message declarations into encoders and decoders for each version."""
