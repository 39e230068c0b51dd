"""Accesses the disk: the file system port, file names, checkpoints and small files."""
