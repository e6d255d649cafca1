"""The error that a user of a broker sees."""


class BrokerError(Exception):
    """The broker cannot start, has ended, or does not answer; the text is one line that says which and why."""
