"""Why a poll has to do more than return records that are ready.

Most steps of ``async for`` and many polls find a record ready and look at one flag, :attr:`Attention.needed`. Whatever
else concerns the program sets that flag: partitions to revoke, a commit that is due, a wakeup, an error. Polls that
wait are woken by the event.
"""

import asyncio

from barnabas_client.errors import WakeupError
from barnabas_protocol.errors import KafkaError


class Attention:
    """The flag, the event, and the errors that the next poll raises."""

    __slots__ = ("error", "event", "failure", "needed", "refusal", "woken")

    def __init__(self) -> None:
        #: The next poll has more to do than to return records.
        self.needed = True
        #: Set when a poll that waits should look again.
        self.event = asyncio.Event()
        #: `wakeup` was called.
        self.woken = False
        #: The membership failed: raised by every poll.
        self.failure: KafkaError | None = None
        #: A topic cannot be read: raised by every poll while that is so.
        self.refusal: KafkaError | None = None
        #: Raised by the next poll, once.
        self.error: KafkaError | None = None

    def call(self) -> None:
        """Ask for the attention of the next poll, or of the one that waits."""
        self.needed = True
        self.event.set()

    def fail(self, error: KafkaError) -> None:
        """Have every poll raise this error."""
        self.failure = error
        self.call()

    def refuse(self, error: KafkaError) -> None:
        """Have polls raise this error until it is withdrawn."""
        self.refusal = error
        self.call()

    def raise_once(self, error: KafkaError) -> None:
        """Have the next poll raise this error. An earlier one that has not been raised yet comes first."""
        self.error = self.error or error
        self.call()

    def forget_errors(self) -> None:
        """The program has subscribed again: earlier errors no longer concern it."""
        self.failure = self.refusal = None

    def take_wakeup(self) -> None:
        """End a poll if `wakeup` was called.

        Raises:
            WakeupError: it was called.
        """
        if self.woken:
            self.woken = False
            raise WakeupError("wakeup() was called")
