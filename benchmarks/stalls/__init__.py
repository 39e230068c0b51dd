"""Measures how long others wait while a broker does long work."""
