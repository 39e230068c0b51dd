"""Defines configuration keys: their types, bounds, defaults and scopes."""
