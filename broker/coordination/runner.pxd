# Its classes stay classes of Python: the bodies of the functions are compiled, and types of C would save little.
