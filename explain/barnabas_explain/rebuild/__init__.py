"""Rebuilds the events of a group from the records of ``__consumer_offsets``, or from looks at the group. Pure.

Apache Kafka has no ``__group_events``, but its coordinator records each generation of a classic group, each change
of a group of the consumer protocol, and each committed offset. `rebuilder` compares them and makes events
like those of a broker (:mod:`~barnabas_explain.records`), so that the same sentences explain both.

What the records do not say, an event does not say either. An event that is concluded has ``"inferred": true``:

- ``between`` are the earliest and the latest time in ms since 1970, either None if unknown; ``time`` is the latest one;
- ``member_gone`` has ``possible``: "left", "expired" or "not_rejoined", without those that the evidence excludes. The
  evidence is ``last_commit`` (topic, partition and time), ``session_ms`` and ``rebalance_timeout_ms``;
- the ``cause`` of ``rebalance_started`` and ``group_epoch_bumped`` is "not_recorded" if the records leave several;
- ``rebalance_over`` and ``group_reconciled`` have ``pauses``: for how many milliseconds a partition had no owner,
  ``at_least_ms`` and ``at_most_ms``;
- ``offsets_committed`` counts commits since the last change of the group;
- ``history_began`` says from where on the group is known;
- ``history_gap`` has a ``gap``, what is missing or cannot be used: "compacted", "not_completed", "unreadable",
  "clock", "unknown_type", "too_many", "went_back" or "open_transaction".

Source: Kafka's ``GroupMetadataManager`` and ``GroupCoordinatorRecordHelpers`` for which records are written, and when.

`history` is what both protocols have in common, `classic` compares generations, `consumer` follows epochs, `rebuilder`
reads the records.
"""
