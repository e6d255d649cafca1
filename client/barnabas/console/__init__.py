"""The console: the page of the broker for any cluster, Barnabas or Apache Kafka; and reports of groups as files.

The page, its responses and what it draws of events (`chart`) belong to the broker's package, which does not import the
client. Events, descriptions and offset resets of any cluster belong to the client, which does not import the broker.
This package imports both, and nothing imports it: `barnabas` finds its commands by the entry point
``barnabas.commands``.

- `views`: groups as JSON, in the shape of the broker's endpoint; pure
- `cluster`: asks the brokers for them; `histories`: the events of the groups that pages show, from ``__group_events``,
  ``__consumer_offsets`` or descriptions, whichever can be had
- `overview`: topics, brokers, transactions and ACLs as JSON, likewise; pure. `survey` asks the brokers for them, and
  `records` for records
- `looks`: any number of pages cost the brokers no more than one
- `resets`: offset resets that a page plans and confirms
- `server`: all of it over HTTP; the only module that needs aiohttp
- `command`, `report`: `barnabas console`, `barnabas groups report`
"""

from typing import Any, Final

from barnabas.console import command, report

COMMANDS: Final[tuple[dict[str, Any], ...]] = (command.COMMAND, report.COMMAND)
