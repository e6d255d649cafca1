"""The log lines of group events. Pure.

An operator gets one line for each rebalance, when it is over, and one for everything else that matters. The steps in
between go to the debug level in Kafka's words (:meth:`.GroupEvent.kafka`), so that searches for Kafka's messages find
them.
"""

from typing import Final

from barnabas_explain.catalog import (
    EVENTS,
    NOT_PROVIDED,
    Caused,
    GroupDeleted,
    GroupDowngraded,
    GroupEmpty,
    GroupEvent,
    GroupReconciled,
    GroupUnloaded,
    Line,
    MemberEvent,
    MemberExpired,
    RebalanceOver,
    RebalanceStarted,
    Started,
    in_words,
)
from barnabas_protocol.durations import seconds

#: Events after which the reason of the rebalance before does not count any more.
_ENDS: Final = (RebalanceOver, GroupReconciled, GroupEmpty, GroupUnloaded, GroupDeleted)


class GroupLines:
    """Writes the lines of operators. It remembers why a rebalance has started until that is over."""

    def __init__(self) -> None:
        #: By group: the newest event that may start a rebalance.
        self._newest: dict[str, GroupEvent] = {}
        #: By group: why the current rebalance has started.
        self._reasons: dict[str, str] = {}

    def line_of(self, event: GroupEvent) -> Line | None:
        """The line of a group event; None if the event has none. Takes every event of every group, in their order."""
        group = event.group
        if isinstance(event, Started):
            self._reasons[group] = _reason_of(event, self._newest.get(group))
            return None
        if isinstance(event, GroupDowngraded):
            return event.line(_reason_of(event, self._newest.get(group)))
        reason = self._reasons.get(group, "unknown")
        if isinstance(event, _ENDS):
            self._newest.pop(group, None)
            self._reasons.pop(group, None)
        elif event.because is not None:
            self._newest[group] = event
        return event.line(reason)

    def forget(self, group: str) -> None:
        """Forget a group that the coordinator does not have any more."""
        self._newest.pop(group, None)
        self._reasons.pop(group, None)


def _reason_of(event: Caused, newest: GroupEvent | None) -> str:
    """Why a rebalance has started, in a few words."""
    cause, by = event.cause, event.by
    is_known = cause in EVENTS and EVENTS[cause].because is not None
    if not by or not is_known:
        given = event.reason if isinstance(event, RebalanceStarted) else None
        return (given or in_words(cause)).rstrip(".")
    others = f" and {len(by) - 1} more" if len(by) > 1 else ""
    reason = f"{by[0].name}{others} {in_words(cause)}"
    if isinstance(newest, MemberEvent) and newest.type == cause:
        if isinstance(newest, MemberExpired):
            reason += f" of {seconds(newest.session_ms / 1000)}"
        if newest.client_reason not in (None, "", NOT_PROVIDED):
            reason += f": {newest.client_reason}"
    return reason
