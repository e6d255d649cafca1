"""Regular expressions and names of topics that Kafka's engine and ours are compared with."""

import random
from typing import Final

NAMES: Final = [
    "orders",
    "orders-eu",
    "orders-us",
    "orders.eu.v2",
    "Orders",
    "my-orders",
    "orders_1",
    "o",
    "a" * 249,
    "__consumer_offsets",
    "..a",
    "a.b",
    "a-b",
    "123",
    "a123",
]

REGEXES: Final = [
    "orders",
    "orders.*",
    "orders-(eu|us)",
    "orders\\.eu\\..*",
    "(?i)orders",
    "(?i:ORDERS)-eu",
    ".*",
    ".+",
    "",
    "^orders$",
    "\\Aorders\\z",
    "orders|my-orders",
    "o|orders",
    "[^_].*",
    "[[:alpha:]]+",
    "[[:word:]]+",
    "\\w+",
    "\\d+",
    "\\D+",
    "a\\d{3}",
    "a{249}",
    "a{1,248}",
    "(a?){249}",
    "(a*)*",
    "(a|aa)+",
    "\\Qa.b\\E",
    "a.b",
    "\\pL+",
    "\\p{Lu}.*",
    "\\PL+",
    "(?P<name>orders)",
    "(?<name>orders)",
    "o.*?s",
    "(?s).*",
    "(?m)^orders$",
    "(?U)o.*",
    "\\borders\\b.*",
    "[a-z]+[-._][a-z0-9.]+",
    "\\x6frders",
    "\\x{6f}rders",
    "((((((o))))))",
    "o" + "?" * 1,
    # These do not compile.
    "(",
    ")",
    "[",
    "a[",
    "[z-a]",
    "*",
    "+a",
    "a**",
    "a{1001}",
    "a{2,1}",
    "(?=a)",
    "(?!a)",
    "(?<=a)a",
    "(a)\\1",
    "\\",
    "a\\",
    "\\y",
    "[[:nope:]]",
    "\\p{Nope}",
    "(?P<n>a)(?P<n>b)",
    "(?P<>a)",
    "(?z)a",
    "((a{100}){100}){100}",
    "\\8",
    "(?i",
    "[a-\\d]",
]

#: Kafka refuses these, too, but says something else, such as "internal error".
OTHER_WORDS: Final = {")", "(?<=a)a"}

#: Kafka refuses a name that comes twice.
ACCEPTED_HERE: Final = {"(?P<n>a)(?P<n>b)"}

#: Kafka accepts these; a million instructions are more than we allow.
TOO_LARGE: Final = {"((a{100}){100}){100}"}


def random_regex(dice: random.Random, depth: int) -> str:
    """An expression over a few letters; most of them compile.

    Without ``(?i)``, which Kafka's engine gets wrong in places: to it, ``xB|x(?i:b)`` does not match "xb".
    """
    kind = dice.random()
    if depth == 0 or kind < 0.3:
        return dice.choice(
            ("a", "b", "B", "1", "-", "\\.", "_", ".", "[ab]", "[^a]", "\\w", "\\W", "\\d", "[[:upper:]]", "\\pL", "")
        )
    inner = random_regex(dice, depth - 1)
    if kind < 0.55:
        return inner + random_regex(dice, depth - 1)
    if kind < 0.7:
        return f"{inner}|{random_regex(dice, depth - 1)}"
    if kind < 0.85:
        return dice.choice(("(%s)", "(?:%s)", "^%s", "%s$", "\\b%s")) % inner
    return f"(?:{inner})" + dice.choice(("*", "+", "?", "*?", "+?", "??", "{2}", "{1,3}", "{0,2}?", "{2,}", "**"))
