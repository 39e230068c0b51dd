"""Provides what handlers share: the context of a request, services, error codes, time slices."""
