"""Measures the controller and large clusters."""
