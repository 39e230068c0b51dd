"""Reserves the place of the transaction coordinator."""
