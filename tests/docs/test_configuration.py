"""docs/configuration.md is what the broker's tables of keys say."""

import re

from barnabas_broker.config import BROKER_KEYS, TOPIC_KEYS
from barnabas_broker.config.unsupported import UNSERVED
from tests.docs.configuration import PAGE, render


def test_the_page_is_current() -> None:
    assert PAGE.read_text("utf-8") == render(), "run: make pages"


def test_the_page_has_each_key() -> None:
    listed = re.findall(r"^\| `([^`]+)` \|", PAGE.read_text("utf-8"), re.MULTILINE)
    for keys in (BROKER_KEYS, TOPIC_KEYS, UNSERVED):
        assert keys.keys() - set(listed) == set()
    served = {*BROKER_KEYS, *TOPIC_KEYS}
    assert [name for name in served if listed.count(name) != (name in BROKER_KEYS) + (name in TOPIC_KEYS)] == []
