"""Claims the one top-level name that an installed Ottla has. The floors are in the folder `floors` of this package then.

No module of this package is imported by a program of somebody else: it only starts processes of Ottla.
"""
