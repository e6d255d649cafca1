"""The cluster demo: `python -m examples.cluster`, or `make cluster-demo`."""
