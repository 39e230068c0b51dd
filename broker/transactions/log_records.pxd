# Its functions have no types of C: they deal with bytes and with fields of tuples.
