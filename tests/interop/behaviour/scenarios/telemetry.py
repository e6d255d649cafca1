"""Metrics of clients (KIP-714): the configuration of subscriptions, what clients shall push, and which pushes count."""

from typing import Any, Final

from barnabas_protocol.registry import ApiKey
from tests.interop.behaviour.language import Ask, Difference, Family, Scenario, Step, ask, flat
from tests.interop.behaviour.scenarios.configs import APPEND, DELETE, SET, SUBTRACT

CLIENT_METRICS: Final = 16
NO_ID: Final = bytes(16)
#: An id that no client has.
OTHER: Final = b"sixteen bytes..."
KEYS: Final = ("metrics", "interval.ms", "match")
NAME: Final = "$topic"
PREFIX: Final = "org.apache.kafka.producer."


def _describe(*keys: str, name: str = NAME, version: int = 4, **options: Any) -> Ask:
    resource = {"resource_type": CLIENT_METRICS, "resource_name": name, "configuration_keys": list(keys) or None}
    return ask(ApiKey.DESCRIBE_CONFIGS, version, resources=[resource], **options)


def _change(*changes: tuple[str, int, str | None], name: str = NAME, **options: Any) -> Ask:
    configs = [{"name": key, "config_operation": how, "value": value} for key, how, value in changes]
    resource = {"resource_type": CLIENT_METRICS, "resource_name": name, "configs": configs}
    return ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], **options)


def _replace(name: str = NAME, **values: str | None) -> Ask:
    configs = [{"name": key.replace("__", "."), "value": value} for key, value in values.items()]
    resource = {"resource_type": CLIENT_METRICS, "resource_name": name, "configs": configs}
    return ask(ApiKey.ALTER_CONFIGS, 2, resources=[resource])


def _shown(key: str, value: str) -> Ask:
    return _describe(key, until={"results.0.configs.0.value": value})


def _remove(name: str = NAME) -> Ask:
    return _change(*((key, DELETE, None) for key in KEYS), name=name, quiet=True)


def _list(version: int = 1) -> Ask:
    wanted: dict[str, Any] = {"resource_types": [CLIENT_METRICS]} if version else {}
    return ask(ApiKey.LIST_CONFIG_RESOURCES, version, only={"config_resources.resource_name": NAME}, **wanted)


def _configured(title: str, *steps: Step) -> Scenario:
    return Scenario(f"Client metrics: {title}", flat(*steps, _remove()))


def _subscriptions(
    client_instance_id: bytes | str = NO_ID, *, client_id: str = "pusher", save: bool = False, **options: Any
) -> Ask:
    saved = {"instance": "client_instance_id", "subscription": "subscription_id"} if save else {}
    if client_instance_id == NO_ID and not save:
        saved = {"another": "client_instance_id"}
    return ask(
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
        0,
        client_instance_id=client_instance_id,
        client_id=client_id,
        save=saved,
        **options,
    )


def _push(client_instance_id: bytes | str = "$instance", *, client_id: str = "pusher", **content: Any) -> Ask:
    given: dict[str, Any] = {"subscription_id": "$subscription", "metrics": b"", **content}
    return ask(ApiKey.PUSH_TELEMETRY, 0, client_instance_id=client_instance_id, client_id=client_id, **given)


def _pushing(title: str, *steps: Step, interval: int = 290_000, match: str = "client_id=pusher") -> Scenario:
    """A client has asked what to push: saved as "instance" and "subscription"."""
    subscribed = _change(("metrics", SET, PREFIX), ("interval.ms", SET, str(interval)), ("match", SET, match))
    seen = {"push_interval_ms": interval}
    return Scenario(f"Telemetry: {title}", flat(subscribed, _subscriptions(save=True, until=seen), *steps, _remove()))


_REFUSED: Final = (
    ("interval.ms", SET, "99"),
    ("interval.ms", SET, "3600001"),
    ("interval.ms", SET, "-1"),
    ("interval.ms", SET, "soon"),
    ("interval.ms", SET, ""),
    ("interval.ms", SET, None),
    ("interval.ms", APPEND, "1"),
    ("metrics", SET, "a,,b"),
    ("metrics", SET, "a,a"),
    ("match", SET, "client_id"),
    ("match", SET, "name=a"),
    ("match", SET, "client_id=("),
    ("match", SET, "client_id=a,"),
    ("no.such.key", SET, "1"),
)

SCENARIOS: Final = (
    *(
        _configured(f"described with v{version}", _describe(version=version), _describe("interval.ms", version=version))
        for version in (1, 3, 4)
    ),
    _configured("an unknown key", _describe("no.such.key")),
    _configured("with synonyms", _describe(include_synonyms=True)),
    _configured("without a name", _describe(name=""), _change(("metrics", SET, "*"), name="")),
    _configured(
        "set, described and removed",
        _change(("metrics", SET, "a.,b."), ("interval.ms", SET, "1000"), ("match", SET, "client_id=a.*")),
        _shown("interval.ms", "1000"),
        _describe(include_synonyms=True),
        _list(0),
        _list(1),
        _change(("interval.ms", DELETE, None)),
        _shown("interval.ms", "300000"),
        _describe(),
    ),
    _configured("not listed without configuration", _list(0), _list(1)),
    _configured(
        "values are appended",
        _change(("metrics", SET, "a.,b.")),
        _shown("metrics", "a.,b."),
        _change(("metrics", APPEND, "c.")),
        _change(("metrics", SUBTRACT, "b.")),
    ),
    *(
        _configured(f"{key}={value!r} is refused ({how})", _change((key, how, value)), _describe())
        for key, how, value in _REFUSED
    ),
    _configured("accepted: spaces in match", _change(("match", SET, " client_id = a , client_software_name=b"))),
    _configured("accepted: one name twice in match", _change(("match", SET, "client_id=a,client_id=b"))),
    _configured("one key twice", _change(("interval.ms", SET, "500"), ("interval.ms", SET, "600")), _describe()),
    _configured("only validated", _change(("interval.ms", SET, "500"), validate_only=True), _describe()),
    _configured(
        "AlterConfigs replaces all keys",
        _change(("metrics", SET, "a."), ("interval.ms", SET, "500")),
        _shown("interval.ms", "500"),
        _replace(interval__ms="600"),
        _shown("interval.ms", "600"),
        _describe(),
        _replace(interval__ms="1"),
        _replace(),
        _shown("interval.ms", "300000"),
        _list(1),
    ),
    Scenario("Telemetry: nothing to push", (_subscriptions(client_id="idle", save=True), _push(client_id="idle"))),
    Scenario(
        "Telemetry: an id of its own",
        (_subscriptions(OTHER, client_id="idle"), _subscriptions(OTHER, client_id="idle")),
    ),
    Scenario(
        "Telemetry: of a client that never asked",
        (_push(b"sixteen bytes ..", subscription_id=1), _subscriptions(b"sixteen bytes ..")),
    ),
    *(
        Scenario(f"Telemetry, the id is {what}", (_push(value, subscription_id=1),))
        for what, value in (("zero", NO_ID), ("one", bytes(15) + b"\x01"))
    ),
    _pushing("another client", _subscriptions(client_id="pushers")),
    _pushing("pushed", _push()),
    _pushing("pushed twice within the interval", _push(), _push(), _push()),
    _pushing("asked twice within the interval", _subscriptions("$instance"), _push(), _subscriptions("$instance")),
    _pushing("pushed for another subscription", _push(subscription_id=7), _push(), _subscriptions("$instance")),
    _pushing(
        "asked again after an unknown subscription", _push(subscription_id=7), _subscriptions("$instance"), _push()
    ),
    _pushing(
        "asked again after an unknown compression", _push(compression_type=9), _subscriptions("$instance"), _push()
    ),
    _pushing("the last push", _push(), _push(terminating=True), _push(), _push(terminating=True), _push()),
    _pushing("the last push comes first", _push(terminating=True), _push(), _subscriptions("$instance")),
    *(_pushing(f"compression {codec}, empty", _push(compression_type=codec)) for codec in (-1, 0, 1, 4, 5)),
    _pushing("too large", _push(metrics=bytes(1024 * 1024 + 1)), _push()),
    _pushing("broken", _push(metrics=b"\x0a\x05no"), _push()),
    _pushing("compressed, broken", _push(metrics=b"no", compression_type=4)),
    _pushing("pushed on another connection", _push(), _push(on="b"), _subscriptions("$instance", on="b")),
    _pushing(
        "the subscription changes",
        _push(),
        _change(("metrics", SET, "a.")),
        _shown("metrics", "a."),
        _subscriptions(until={"requested_metrics.0": "a."}, quiet=True),
        _push(),
        _subscriptions("$instance"),
        _subscriptions("$instance"),
    ),
    _pushing(
        "a second subscription",
        _change(("metrics", SET, f"a.,{PREFIX}"), ("interval.ms", SET, "280000"), name="$topic-b"),
        _subscriptions(until={"push_interval_ms": 280_000}),
        _change(("metrics", SET, "*,b."), ("interval.ms", SET, "7000"), name="$topic-c"),
        _subscriptions(until={"push_interval_ms": 7_000}),
        _remove("$topic-b"),
        _remove("$topic-c"),
        interval=290_000,
    ),
    *(
        _pushing(f"match {match}", match=match)
        for match in (
            "client_id=push.*",
            "client_source_address=127.0.0.1",
            "client_id=pusher,client_software_name=unknown",
        )
    ),
)

DIFFERENCES: Final = (
    Difference(
        "Values can be appended to the lists of a subscription, and subtracted",
        "Kafka does not know that `metrics` and `match` are lists.",
        (("Client metrics: values are appended", "*"),),
    ),
    Difference(
        "Counters of clients are asked for as totals",
        "Kafka asks for differences. With totals, a push that is lost loses nothing.",
        (("Telemetry: *", "*.delta_temporality"),),
    ),
    Difference(
        "A push that cannot be read is INVALID_RECORD",
        "Kafka gives pushes to a plugin; without one it reads nothing of them.",
        (("Telemetry: broken", "*.error_code"),),
    ),
)

FAMILY: Final = Family("Metrics of clients", SCENARIOS, DIFFERENCES)
