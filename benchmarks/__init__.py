"""Side-by-side measurements of brokers. See README.md in this folder; `python -m benchmarks.bench` is `make bench`."""
