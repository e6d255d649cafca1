"""Durations in log lines."""


def seconds(duration: float) -> str:
    """A duration in seconds as it stands in log lines: ``0.021s``, which Go and Loki read, too."""
    return f"{duration:.3f}s"
