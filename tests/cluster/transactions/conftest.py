"""Says which tests of this folder only `make soak` runs."""

import os

import pytest

in_soak = pytest.mark.skipif("OTTLA_SOAK" not in os.environ, reason="make soak runs it")
