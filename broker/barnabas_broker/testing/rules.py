"""Which faults a request meets. Pure: requests go in one after another, the rules that apply come out."""

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from typing import Final

from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.registry import APIS, ApiKey

#: Stands for every API.
ANY: Final = "*"


class Kind(Enum):
    """What a fault does."""

    DELAY = "delay"
    DROP = "drop"
    ERROR = "error"


@dataclass(slots=True)
class Rule:
    """One fault.

    Attributes:
        number: tells it from the others.
        kind: what it does.
        api: whose requests; None for all.
        client_id: of which client; None for all.
        nth: the first request that meets it, from 1 on, counting those that fit.
        times: how many requests meet it; None for all from then on.
        seconds: for a delay.
        code: for an error.
        executed: whether the request is carried out, although its answer is lost or an error.
        seen: requests that fitted so far.
        fired: requests that met it so far.
    """

    number: int
    kind: Kind
    api: ApiKey | None
    client_id: str | None = None
    nth: int = 1
    times: int | None = 1
    seconds: float = 0.0
    code: ErrorCode = ErrorCode.NONE
    executed: bool = False
    seen: int = 0
    fired: int = 0

    def __str__(self) -> str:
        if self.kind is Kind.DELAY:
            return f"delay {self.seconds:g} s"
        what = f"error {self.code.name}" if self.kind is Kind.ERROR else "drop"
        return f"{what} after it was carried out" if self.executed else what

    def _meets(self, api: ApiKey, client_id: str) -> bool:
        if self.api not in (None, api) or self.client_id not in (None, client_id):
            return False
        if self.times is not None and self.fired >= self.times:
            return False
        self.seen += 1
        if self.seen < self.nth:
            return False
        self.fired += 1
        return True

    def take_back(self) -> None:
        """The request had no place for it: let the next one meet it."""
        self.fired -= 1


class Rules:
    """The faults that there are, in the order in which they were made.

    Args:
        first: the number of the first one; another broker's faults should have others.
    """

    def __init__(self, first: int = 1) -> None:
        self._rules: dict[int, Rule] = {}
        self._made: dict[int, Rule] = {}
        self._next = first

    def __getitem__(self, number: int) -> Rule:
        """A rule, also one that was removed.

        Raises:
            ValueError: there was none.
        """
        if number not in self._made:
            raise ValueError("this fault ended when its broker was stopped")
        return self._made[number]

    def add(
        self,
        kind: str,
        api: str | int,
        *,
        client_id: str | None = None,
        nth: int = 1,
        times: int | None = 1,
        seconds: float = 0.0,
        code: str | int = 0,
        executed: bool = False,
    ) -> Rule:
        """Make a rule.

        Raises:
            ValueError: an argument is wrong; the text says what it may be.
        """
        of_kind = Kind(kind)
        if nth < 1:
            raise ValueError(f"nth={nth}: the first request is 1")
        if times is not None and times < 1:
            raise ValueError(f"times={times}: must be 1 or more, or None for all requests")
        if seconds < 0:
            raise ValueError(f"seconds={seconds}: must be 0 or more")
        error = find_code(code) if of_kind is Kind.ERROR else ErrorCode.NONE
        key = None if api == ANY else find_api(api)
        number, self._next = self._next, self._next + 1
        rule = Rule(number, of_kind, key, client_id, nth, times, seconds, error, executed)
        self._rules[number] = self._made[number] = rule
        return rule

    def __iter__(self) -> Iterator[Rule]:
        return iter(list(self._rules.values()))

    def remove(self, number: int) -> Rule | None:
        """Forget a rule; None if it is forgotten already."""
        return self._rules.pop(number, None)

    def met_by(self, api: ApiKey, client_id: str) -> list[Rule]:
        """The rules that this request meets. Every rule that it fits counts it."""
        return [rule for rule in self._rules.values() if rule._meets(api, client_id)]


def api_name(api: ApiKey) -> str:
    """An API's name as Kafka writes it: "JoinGroup"."""
    return "".join(part.capitalize() for part in api.name.split("_"))


def _plain(name: str) -> str:
    return "".join(filter(str.isalnum, name)).lower()


_APIS: Final = {_plain(api.name): api for api in APIS}


def find_api(api: str | int) -> ApiKey:
    """An API by its key or its name: "JoinGroup", "JOIN_GROUP" and "join_group" are the same.

    Raises:
        ValueError: there is none.
    """
    if isinstance(api, int):
        if api not in APIS:
            raise ValueError(f"{api}: no API has this key")
        return ApiKey(api)
    found = _APIS.get(_plain(api))
    if found is None:
        near = [api_name(_APIS[name]) for name in get_close_matches(_plain(api), _APIS, 3)]
        raise ValueError(f"{api!r}: no API has this name{_hint(near)}")
    return found


def find_code(code: str | int) -> ErrorCode:
    """An error code by its number or its name.

    Raises:
        ValueError: there is none, or it is NONE.
    """
    try:
        found = ErrorCode(code) if isinstance(code, int) else ErrorCode[code.upper()]
    except (KeyError, ValueError):
        near = [] if isinstance(code, int) else get_close_matches(code.upper(), ErrorCode.__members__, 3)
        raise ValueError(f"{code!r}: no such error code{_hint(near)}") from None
    if found is ErrorCode.NONE:
        raise ValueError("NONE is no error")
    return found


def _hint(near: list[str]) -> str:
    return f"; did you mean {' or '.join(near)}?" if near else ""
