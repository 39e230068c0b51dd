"""Decides which user a request of the console has: by password, or by the proxy."""
