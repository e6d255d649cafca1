"""The flights demo: `python -m examples.flights`, or `make demo`."""
