"""Rewords the errors of the library for the command line. Pure.

The library's errors name its settings, such as `request_timeout_ms`; a command has options.
"""

import re
from typing import Final

from barnabas_client.config import ClientConfig, ConsumerConfig
from barnabas_client.producer.config import ProducerConfig

#: The options that set a setting, or the time that a setting follows from.
OPTIONS: Final = {
    "bootstrap_servers": "--bootstrap-servers",
    "compression_type": "--compression",
    "delivery_timeout_ms": "--timeout",
    "group_id": "--group",
    "max_block_ms": "--timeout",
    "request_timeout_ms": "--timeout",
    "timeout_ms": "--timeout",
}
_NAMES: Final = {name for config in (ClientConfig, ConsumerConfig, ProducerConfig) for name in config.TYPES}
_OPTION: Final = re.compile(rf"\b({'|'.join(OPTIONS)})\b")
#: Settings without an option, and methods: advice for programs.
_FOR_PROGRAMS: Final = re.compile(
    rf"\b({'|'.join(sorted(name for name in _NAMES - set(OPTIONS) if '_' in name))})\b|\w\(|`|_context=|producer="
)


def for_command_line(error: Exception | str) -> str:
    """Return the text of an error with options in place of settings, without advice that only a program can follow."""
    text = _OPTION.sub(lambda found: OPTIONS[found[0]], str(error))
    what, to_do, _ = text.partition(". To do: ")
    return what if to_do and _FOR_PROGRAMS.search(text) else text
