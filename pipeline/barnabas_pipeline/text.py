"""Durations and sizes as text for people."""


def duration(seconds: float) -> str:
    """Format a duration: ``7 s``, ``3 min 20 s``, ``2 h 5 min``."""
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    large, small, units = (
        (whole // 60, whole % 60, "min s") if whole < 7200 else (whole // 3600, whole % 3600 // 60, "h min")
    )
    unit, part = units.split()
    return f"{large} {unit} {small} {part}" if small else f"{large} {unit}"


def size(count: float) -> str:
    """Format a number of bytes: ``12 B``, ``2.0 KiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
