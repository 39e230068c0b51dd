"""Is the package of Ottla. Its floors are folders at the root of a checkout, to which links in this folder lead.

Other programs use `ottla.client`, the library, and `ottla.testing`, a broker inside a test.
"""

from ottla.protocol import compiled as compiled  # decides before `ottla.pauses`, which is compiled, is imported
