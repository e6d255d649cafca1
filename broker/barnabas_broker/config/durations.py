"""ISO 8601 durations in configurations: ``PT1H30M``, ``P2DT12H``."""

import re
from typing import Final

_DURATION: Final = re.compile(
    r"P(?:(\d{1,9})D)?(?:T(?=\d)(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9}(?:\.\d{1,9})?)S)?)?", re.IGNORECASE
)
_SECONDS: Final = (86_400, 3_600, 60, 1)


def duration_seconds(text: str) -> float:
    """Read a duration as Java does, without signs.

    Raises:
        ValueError: it is none.
    """
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()):
        raise ValueError("must be an ISO 8601 duration, PT1H30M for instance")
    return sum(float(part) * unit for part, unit in zip(found.groups(), _SECONDS, strict=True) if part)
