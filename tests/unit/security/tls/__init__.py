"""Tests of the certificates, names and contexts of TLS listeners."""
