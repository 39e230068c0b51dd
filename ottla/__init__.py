"""Claims the one top-level name that an installed Ottla has. The floors are in the folder `floors` of this package then.

Programs of others import `ottla.testing` alone; the other modules only start processes of Ottla.
"""
