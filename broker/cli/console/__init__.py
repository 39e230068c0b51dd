"""Serves the console: a JSON API over the client of this project, and a page that is its first user."""
