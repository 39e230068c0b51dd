"""Handles requests about configurations, quotas and SCRAM credentials."""
