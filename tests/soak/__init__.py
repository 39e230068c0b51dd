"""Random work for minutes, checked against a model in memory: `python -m tests.soak --minutes 5 --seed 1`."""
