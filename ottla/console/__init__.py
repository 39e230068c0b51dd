"""Serves the console: a JSON API on the Kafka client of this project, and a page that uses the API."""
