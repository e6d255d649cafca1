"""Offset resets of a page: the dry run of `barnabas groups reset-offsets`, and its confirmation."""

import secrets
from argparse import Namespace
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from barnabas_client.admin.admin import Admin
from barnabas_client.cli import values
from barnabas_client.cli.failures import CommandError
from barnabas_client.cli.reset import Plan, as_data, commit, make_plan

#: Plans that wait for their confirmation, and for how many seconds. Offsets that were looked up are soon out of date.
_MOST_PLANS: Final = 64
_SECONDS: Final = 300.0
#: Maximum number of topics of a reset.
_MOST_TOPICS: Final = 1_000
#: Targets by the names that a page sends: the option of the command, and what reads its value.
_TARGETS: Final[dict[str, tuple[str, Callable[[str], object] | None]]] = {
    "earliest": ("to_earliest", None),
    "latest": ("to_latest", None),
    "current": ("to_current", None),
    "offset": ("to_offset", int),
    "datetime": ("to_datetime", values.instant),
    "duration": ("by_duration", values.duration),
    "shift": ("shift_by", int),
}
_OPTIONS: Final = ("to_earliest", "to_latest", "to_current")


class _Waiting(NamedTuple):
    group: str
    plan: Plan
    until: float


class Resets:
    """Plans offset resets, and executes those plans that are confirmed: what is committed is what was shown.

    Args:
        admin: of the brokers.
        now: a monotonic clock, in seconds.
    """

    def __init__(self, admin: Admin, now: Callable[[], float]) -> None:
        self._admin, self._now = admin, now
        self._waiting: OrderedDict[str, _Waiting] = OrderedDict()

    async def plan(self, group: str, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """The dry run.

        Args:
            group: its name.
            wanted: the target `to`, its `value` and `topics`, as the page sends them.

        Returns:
            The JSON data of the command, and as `plan` what :meth:`execute` takes.

        Raises:
            ValueError: `wanted` is not valid.
            CommandError: the group has members, or no partition is selected.
            KafkaError: a partition does not exist.
        """
        plan = await make_plan(self._admin, arguments_of(group, wanted))
        name = secrets.token_urlsafe(16)
        self._waiting[name] = _Waiting(group, plan, self._now() + _SECONDS)
        if len(self._waiting) > _MOST_PLANS:
            self._waiting.popitem(last=False)
        return {**as_data(group, plan, {}, executed=False), "plan": name}

    async def execute(self, group: str, name: str) -> dict[str, Any]:
        """Commit the offsets of a plan.

        Raises:
            CommandError: there is no such plan, or it is too old.
            KafkaError: the broker refuses, because the group has members for instance.
        """
        waiting = self._waiting.pop(name, None)
        if waiting is None or waiting.group != group or waiting.until < self._now():
            raise CommandError("this dry run is too old, or was executed already. To do: make another one")
        errors = await commit(self._admin, group, waiting.plan)
        return as_data(group, waiting.plan, errors, executed=True)


def arguments_of(group: str, wanted: Mapping[str, Any]) -> Namespace:
    """The arguments of the command for what a page wants. Pure.

    Raises:
        ValueError: it is not valid.
    """
    target, value, topics = wanted.get("to"), wanted.get("value"), wanted.get("topics", [])
    if not isinstance(target, str) or target not in _TARGETS:
        raise ValueError(f"to: must be one of {', '.join(_TARGETS)}")
    if not isinstance(topics, list) or len(topics) > _MOST_TOPICS or not all(isinstance(each, str) for each in topics):
        raise ValueError("topics: must be a list of topics, such as orders or orders:0,2")
    option, read = _TARGETS[target]
    given: dict[str, object] = dict.fromkeys(each for each, _ in _TARGETS.values())
    given |= dict.fromkeys(_OPTIONS, False)
    if read is None:
        given[option] = True
    elif not isinstance(value, str) or len(value) > 100:
        raise ValueError("value: must be a text")
    else:
        given[option] = _read(read, value)
    specs = [values.topic_spec(each) for each in topics] or None
    return Namespace(group=group, topics=specs, from_file=None, **given)


def _read(read: Callable[[str], object], value: str) -> object:
    try:
        found = read(value)
    except ValueError as error:
        raise ValueError(f"{value!r} is not a whole number" if read is int else str(error)) from None
    if isinstance(found, int) and not -(2**63) <= found < 2**63:
        raise ValueError(f"{value!r} is too large")
    return found
