"""Write the tables of docs/configuration.md: every configuration key, from the tables that the broker itself reads.

python -m tests.docs.configuration
"""

import argparse
import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from barnabas_broker.config import BROKER_KEYS, CLIENT_METRICS_KEYS, GROUP_KEYS, TOPIC_KEYS, Key, show
from barnabas_broker.config.keys import DYNAMIC_KEYS, INT_MAX, LONG_MAX
from barnabas_broker.config.unsupported import PREFIXES, REMOVED, UNSERVED

PAGE: Final = Path(__file__).parents[2] / "docs" / "configuration.md"

#: The text before this line is written by hand.
MARK: Final = "<!-- What follows is generated: make pages -->"


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _value(text: str | None) -> str:
    names = {str(INT_MAX): "no limit", str(LONG_MAX): "no limit", "1.7976931348623157e+308": "no limit"}
    if text in names:
        return names[text]
    return f"`{text}`" if text else ""


def _text(doc: str) -> str:
    return re.sub(r"[|<>]", lambda found: f"&#{ord(found[0])};", doc)


def _served(keys: Iterable[Key[Any]]) -> list[str]:
    lines = ["| key | default | unit | dynamic | what it does |", "|---|---|---|---|---|"]
    for key in sorted(keys, key=lambda key: key.name):
        dynamic = "yes" if key.name in DYNAMIC_KEYS else ""
        lines.append(_row([f"`{key.name}`", _value(show(key.default)), key.unit, dynamic, _text(key.doc)]))
    return lines


def _own(keys: Iterable[Key[Any]]) -> list[str]:
    lines = ["| key | default | unit | what it does |", "|---|---|---|---|"]
    for key in sorted(keys, key=lambda key: key.name):
        default = "" if key.broker is None else f"`{key.broker.name}`"
        lines.append(_row([f"`{key.name}`", default, key.unit, _text(key.doc)]))
    return lines


def _unserved(*, refused: bool) -> list[str]:
    lines: list[str] = []
    chosen = [key for key in UNSERVED.values() if key.refused is refused]
    for (group, why), keys in groupby(chosen, key=lambda key: (key.group, key.why)):
        lines += ["", f"### {group}{' (refused)' if refused else ''}", "", f"{why[0].upper()}{why[1:]}.", ""]
        lines += ["| key | Kafka's default | in Kafka |", "|---|---|---|"]
        lines += [_row([f"`{key.name}`", _value(key.default), _text(key.doc)]) for key in keys]
    return lines


def render() -> str:
    """Return the text of the page."""
    ours = [key for key in BROKER_KEYS.values() if key.name.startswith(("cluster.", "etcd."))]
    kafkas = [key for key in BROKER_KEYS.values() if key not in ours]
    lines = ["", "## Served", "", "Dynamic keys can be changed while the broker runs; the others need a restart.", ""]
    lines += [*_served(kafkas), "", "Keys that Apache Kafka does not have:", "", *_served(ours)]
    lines += [
        "",
        "## Of topics",
        "",
        "A topic's own value; the default is the broker's key. All can be changed at any time.",
        "",
    ]
    lines += _own(TOPIC_KEYS.values())
    lines += [
        "",
        "## Of groups",
        "",
        "A consumer group's own value (`barnabas groups alter`); the default is the broker's key, and its"
        " `group.consumer.min.` and `group.consumer.max.` keys bound it. All can be changed at any time, and before"
        " the group exists.",
        "",
    ]
    lines += _own(GROUP_KEYS.values())
    lines += [
        "",
        "## Of metrics of clients",
        "",
        "A subscription to metrics that [clients push](observing.md#metrics-that-clients-push). All can be changed at"
        " any time; a subscription without a value of its own does not exist.",
        "",
    ]
    lines += _own(CLIENT_METRICS_KEYS.values())
    lines += ["", "## Refused", "", "The broker does not start if one of these has another value than Kafka's default."]
    lines += _unserved(refused=True)
    lines += [
        "",
        "## Without effect",
        "",
        "The broker starts, and a warning names the key. Those that are dynamic in Kafka can also be set at run time:"
        " they are stored and listed, and have no effect.",
    ]
    lines += _unserved(refused=False)
    lines += ["", "### Others", "", "| key | why it has no effect |", "|---|---|"]
    lines += [_row([f"`{name}`", f"removed from Apache Kafka: {why}"]) for name, why in REMOVED.items()]
    lines += [_row([f"`{prefix}*`", why]) for prefix, why in PREFIXES.items()]
    return PAGE.read_text("utf-8").partition(MARK)[0] + "\n".join([MARK, *lines]) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    argparse.ArgumentParser(description="Write the tables of docs/configuration.md.").parse_args(argv)
    PAGE.write_text(render(), "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
