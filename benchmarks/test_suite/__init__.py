"""Holds a test suite that needs a broker, and the plugins that give it one, for `benchmarks.parts.test_suites`."""
