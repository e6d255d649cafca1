"""Principals: the client or broker at the other end of a connection, as far as it is known.

Pure. Kafka writes a principal as ``User:NAME``. Without authentication it is ``User:ANONYMOUS``; with a client
certificate its name is the subject of the certificate, changed by ``ssl.principal.mapping.rules`` (KIP-371).

Sources: ``org.apache.kafka.common.security.auth.KafkaPrincipal``, ``...ssl.SslPrincipalMapper``.
"""

import re
from collections.abc import Callable
from typing import Final, NamedTuple

#: Maximum characters of the rules: they are read with a regular expression.
LONGEST_RULES: Final = 65_536
_RULE: Final = re.compile(
    r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)|)\s*(?:,|$)", re.DOTALL | re.ASCII
)
_PART: Final = re.compile(r"\\(?P<literal>.)|\$(?P<group>[0-9]*)|(?P<text>[^\\$]+)|(?P<last>\\)", re.DOTALL)


class Principal(NamedTuple):
    """A principal: its type, which is ``User`` in all that Kafka itself makes, and its name."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


#: A client that has not said who it is.
ANONYMOUS: Final = Principal("User", "ANONYMOUS")


class NoRuleApplies(ValueError):
    """None of the rules applies to a name, so that it has no principal."""


class _Rule(NamedTuple):
    """A rule: names that match `pattern` as a whole become what `rewrite` makes of them."""

    pattern: re.Pattern[str]
    rewrite: Callable[[re.Match[str]], str]
    case: str


class PrincipalRules:
    r"""The rules by which the name of a certificate becomes the name of a principal. The first that applies counts.

    ``DEFAULT`` takes the name as it is. ``RULE:pattern/replacement/`` applies to names that the pattern matches as a
    whole; ``$1`` in the replacement is the pattern's first group. ``L`` or ``U`` after it makes the result lower or
    upper case. A slash in a rule is written ``\/``.

    Args:
        text: the rules, separated by commas; without any, ``DEFAULT`` counts.

    Raises:
        ValueError: what is wrong with a rule.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._rules: list[_Rule | None] = list(_parse(text.strip()))

    def __repr__(self) -> str:
        return f"PrincipalRules({self.text!r})"

    def __str__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PrincipalRules) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def apply(self, name: str) -> str:
        """The name of the principal for the name of a certificate.

        Raises:
            NoRuleApplies: none of the rules applies.
        """
        for rule in self._rules or [None]:
            if rule is None:
                return name
            if rule.pattern.fullmatch(name):
                found = rule.pattern.sub(rule.rewrite, name)
                return found.lower() if rule.case == "L" else found.upper() if rule.case == "U" else found
        raise NoRuleApplies(f"no rule of ssl.principal.mapping.rules applies to {name}")


def _parse(text: str) -> list[_Rule | None]:
    if len(text) > LONGEST_RULES:
        raise ValueError(f"must have at most {LONGEST_RULES} characters")
    rules: list[_Rule | None] = []
    position = 0
    while position < len(text):
        found = _RULE.match(text, position)
        if found is None:
            raise ValueError(
                f"must be DEFAULT or RULE:pattern/replacement/[LU], separated by commas: {text[position:]}"
            )
        default, pattern, replacement, case = found.groups()
        if default:
            rules.append(None)
        elif pattern is not None:
            rules.append(_rule(pattern, replacement, case))
        position = found.end()
    return rules


def _rule(pattern: str, replacement: str, case: str) -> _Rule:
    try:
        compiled = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
    parts: list[str | int] = []
    for found in _PART.finditer(replacement):
        literal, digits, text, last = found.group("literal", "group", "text", "last")
        if last is not None:
            raise ValueError(f"{replacement!r} ends with a backslash")
        if digits is None:
            parts.append(literal if literal is not None else text)
            continue
        # As in Java: as many digits as make the number of a group that exists.
        size = next((size for size in range(len(digits), 0, -1) if int(digits[:size]) <= compiled.groups), 0)
        if not size and digits and compiled.groups:
            parts.append(f"${digits}")  # as in Kafka: the number of a group that does not exist stands for itself
            continue
        if not size:
            raise ValueError(f"{replacement!r} has ${digits}, and {pattern!r} has {compiled.groups} groups")
        parts += [int(digits[:size]), digits[size:]]

    def rewrite(match: re.Match[str]) -> str:
        return "".join(part if isinstance(part, str) else match[part] or "" for part in parts)

    return _Rule(compiled, rewrite, case)
