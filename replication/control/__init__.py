"""Carries out the controller's requests on the replicas of this broker."""
