"""Numbers of things as text for people."""


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """Format a number of things: ``1 record``, ``2,000 records``.

    Args:
        count: how many there are.
        noun: the name of one of them.
        plural: the name of several; None is `noun` with an s.
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {plural or f'{noun}s'}"
