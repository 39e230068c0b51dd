"""Shows small end-to-end uses of a broker."""
