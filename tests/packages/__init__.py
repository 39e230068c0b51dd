"""Tries what is made for servers in file systems of Debian: the package, the steps of the Dockerfile, the compose file."""
