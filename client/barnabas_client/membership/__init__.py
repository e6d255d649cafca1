"""Membership in a consumer group: the member's state machine and the thread that runs it."""
