"""Handles requests about ACLs, delegation tokens and authentication."""
