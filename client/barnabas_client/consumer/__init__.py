"""The consumer: poll loop, fetching, positions, commits, parallel handlers."""
