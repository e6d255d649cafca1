"""The initial rebalance delay of a group that was Empty: more members get the time to join (KIP-134). Pure."""


class InitialDelay:
    """The delay of one rebalance. It never ends early, and is extended while members join.

    Attributes:
        joined: whether a member has joined since it began, or was extended.

    Args:
        longest: seconds that it takes, unless it is extended (``group.initial.rebalance.delay.ms``).
        rebalance_timeout: seconds that it takes at most with its extensions, of the first member.
    """

    __slots__ = ("_longest", "_remaining", "joined", "seconds")

    def __init__(self, longest: float, rebalance_timeout: float) -> None:
        self.seconds = self._longest = longest
        self._remaining = max(rebalance_timeout - longest, 0.0)
        self.joined = False

    def extend(self) -> bool:
        """Its time is over; whether it takes :attr:`seconds` more."""
        if not self.joined or self._remaining <= 0:
            return False
        self.joined = False
        elapsed = self.seconds
        self.seconds = min(self._longest, self._remaining)
        self._remaining = max(self._remaining - elapsed, 0.0)
        return True
