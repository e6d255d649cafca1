"""Valid options, and the errors of invalid ones."""

import ssl
from collections.abc import Mapping
from pathlib import Path

import pytest
import trustme

from barnabas_client import TopicPartition
from barnabas_pipeline.brokers.settings import Settings
from barnabas_pipeline.source.offsets import EARLIEST, LATEST
from barnabas_pipeline.source.options import Bound, ConsumerStrategy, ReadOptions
from tests.lots import in_lots

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
A0 = TopicPartition("a", 0)
LOGIN = {
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "SCRAM-SHA-512",
    "kafka.sasl.jaas.config": 'org.apache.kafka.common.security.scram.ScramLoginModule required username="ada" '
    'password="hush";',
}


TOKEN_URL = "kafka.sasl.oauthbearer.token.endpoint.url"
TOKEN = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "OAUTHBEARER",
    TOKEN_URL: "file:///run/secrets/a%20token",
}


def read(given: Mapping[str, str] | None = None, *, streaming: bool = False, **more: str) -> ReadOptions:
    return ReadOptions.of({**SERVERS, "subscribe": "a", **(given or {}), **more}, streaming=streaming)


def test_the_defaults_are_those_of_sparks_connector() -> None:
    batch, stream = read(), read(streaming=True)
    assert batch.start == Bound("startingOffsets", EARLIEST)
    assert batch.end == Bound("endingOffsets", LATEST)
    assert stream.start == Bound("startingOffsets", LATEST)
    assert batch.fail_on_data_loss and not batch.headers and not batch.latest_if_no_match
    assert (batch.max_offsets, batch.min_offsets, batch.min_partitions, batch.max_records) == (None, None, None, None)
    assert batch.max_delay == 900


def test_names_are_case_insensitive() -> None:
    options = ReadOptions.of(
        {"KAFKA.Bootstrap.Servers": "x:1", "SUBSCRIBE": "b, a,", "failondataloss": "FALSE"}, streaming=True
    )
    assert options.settings.bootstrap_servers == "x:1"
    assert options.topics == ConsumerStrategy(subscribe=("a", "b"))
    assert not options.fail_on_data_loss


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({}, "one of the following options must be specified for the source: subscribe, subscribePattern, assign"),
        ({"subscribe": "a", "assign": '{"a": [0]}'}, "only one of the options subscribe, subscribePattern and assign"),
        ({"subscribe": " , "}, "no topics to subscribe to in option 'subscribe'"),
        ({"subscribePattern": ""}, "option 'subscribePattern' is empty"),
        ({"subscribePattern": "("}, "option 'subscribePattern' is '\\(': not a regular expression"),
        ({"assign": "{}"}, "no partitions to assign in option 'assign'"),
        ({"assign": "a"}, "option 'assign' is 'a': not JSON"),
    ],
)
def test_invalid_topic_selections_are_errors(given: dict[str, str], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        ReadOptions.of({**SERVERS, **given}, streaming=False)


@in_lots(
    ("given", "match"),
    [
        ({"startingOffsets": "latest"}, "starting offset can't be latest for batch queries"),
        (
            {"startingOffsets": '{"a": {"0": -1}}'},
            "'startingOffsets' has -1 for a-0: a batch cannot start at the latest",
        ),
        ({"startingOffsets": "newest"}, "'startingOffsets' is 'newest': give 'earliest', 'latest' or JSON"),
        ({"startingOffsets": '{"a": {"0": -7}}'}, "'startingOffsets' has offset -7 for a-0"),
        ({"endingOffsets": "earliest"}, "ending offset can't be earliest"),
        ({"endingOffsets": '{"a": {"0": -2}}'}, "'endingOffsets' has -2 for a-0: a batch cannot end at the earliest"),
        ({"startingTimestamp": "yesterday"}, "'startingTimestamp' is 'yesterday': give milliseconds since 1970"),
        ({"endingOffsetsByTimestamp": '{"a": {"0": -5}}'}, "'endingOffsetsByTimestamp' has -5 for a-0"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "'guess': give 'error' or 'latest'"),
        ({"minPartitions": "0"}, "option 'minPartitions' is '0': give a whole number, 1 or more"),
        ({"maxRecordsPerPartition": "x"}, "option 'maxRecordsPerPartition' is 'x'"),
        ({"maxOffsetsPerTrigger": "-1"}, "option 'maxOffsetsPerTrigger' is '-1'"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "minOffsetsPerTrigger \\(9\\) is higher than"),
        ({"maxTriggerDelay": "soon"}, "option 'maxTriggerDelay' is 'soon'"),
        ({"failOnDataLoss": "no"}, "option 'failOnDataLoss' is 'no': give true or false"),
        ({"startingOffset": "earliest"}, "'startingOffset' is not known: did you mean 'startingOffsets'"),
        ({"kafka.auto.offset.reset": "latest"}, "'kafka.auto.offset.reset' is not supported.*startingOffsets"),
        ({"kafka.key.deserializer": "x"}, "'kafka.key.deserializer' is not supported: keys are always bytes"),
        ({"kafka.sasl.mechanism": "PLAIN"}, "'kafka.sasl.*' is given, but kafka.security.protocol is PLAINTEXT"),
        (
            {"kafka.sasl.mechanism": "GSSAPI"},
            "'kafka.sasl.mechanism' is 'GSSAPI': give one of 'PLAIN', 'SCRAM-SHA-256'",
        ),
        (
            {"kafka.sasl.kerberos.service.name": "x"},
            "of SASL there are kafka.sasl.mechanism and kafka.sasl.jaas.config",
        ),
        ({"kafka.security.protocol": "SASL_SSL"}, "give kafka.sasl.mechanism and kafka.sasl.jaas.config as well"),
        ({**LOGIN, "kafka.sasl.jaas.config": "hush"}, "'kafka.sasl.jaas.config' must be MODULE required"),
        (
            {**LOGIN, "kafka.sasl.jaas.config": 'M required username="ada";'},
            'must have username="..." and password="..."',
        ),
        ({**TOKEN, "kafka.security.protocol": "SSL"}, "'kafka.sasl.*' is given, but kafka.security.protocol is SSL"),
        ({**LOGIN, TOKEN_URL: "file:///token"}, "kafka.sasl.mechanism is SCRAM-SHA-512"),
        ({**LOGIN, "kafka.sasl.mechanism": "OAUTHBEARER"}, "let another program renew the token in a file, and give"),
        ({**TOKEN, TOKEN_URL: "https://user:hush@issuer/token"}, "is not that of a file: tokens are not requested"),
        ({**TOKEN, TOKEN_URL: "file://elsewhere/token"}, "is not that of a file"),
        ({**TOKEN, TOKEN_URL: "/token"}, "is not that of a file"),
        (
            {**TOKEN, "kafka.sasl.jaas.config": 'M required clientId="a" clientSecret="hush";'},
            "'kafka.sasl.jaas.config' has clientId, clientSecret: tokens are not requested from a provider",
        ),
        ({**TOKEN, "kafka.sasl.jaas.config": "hush"}, "'kafka.sasl.jaas.config' must be MODULE required"),
        ({**TOKEN, "kafka.sasl.login.callback.handler.class": "com.example.Own"}, "give one of 'org.apache.kafka"),
        ({**LOGIN, "kafka.security.protocol": "TLS"}, "'kafka.security.protocol' is 'TLS': give one of"),
        ({**LOGIN, "kafka.ssl.truststore.location": "/x.pem"}, "kafka.security.protocol is SASL_PLAINTEXT"),
        ({"kafka.ssl.truststore.type": "JKS"}, "'kafka.ssl.truststore.type' is 'JKS': give one of 'PEM'"),
        ({"kafka.ssl.truststore.location": "/x.pem"}, "kafka.security.protocol is PLAINTEXT"),
        ({"kafka.request.timeout": "1"}, "not supported: did you mean 'kafka.request.timeout.ms'"),
        ({"kafka.request.timeout.ms": "soon"}, "'kafka.request.timeout.ms' is 'soon'"),
        ({"kafka.acks": "2"}, "option 'kafka.acks' is '2'"),
        ({"kafka.group.id": " "}, "option 'kafka.group.id' is empty"),
    ],
)
def test_invalid_values_name_their_option(given: dict[str, str], match: str) -> None:
    with pytest.raises(ValueError, match=match) as raised:
        read(given)
    assert "hush" not in str(raised.value)


def test_bootstrap_servers_are_required() -> None:
    with pytest.raises(ValueError, match=r"Option 'kafka\.bootstrap\.servers' must be specified"):
        ReadOptions.of({"subscribe": "a"}, streaming=True)


@pytest.mark.parametrize("option", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(option: str) -> None:
    with pytest.raises(ValueError, match=f"option '{option}' is not valid in streaming queries"):
        read({option: "latest"}, streaming=True)


def test_precedence_of_times_and_offsets() -> None:
    given = {"startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"a": {"0": 5}}'}
    assert read(given).start.timestamps == {A0: 5}
    assert read(given, startingTimestamp="7").start == Bound("startingTimestamp", EARLIEST, timestamp=7)


@pytest.mark.parametrize(("text", "seconds"), [("15m", 900), ("30s", 30), ("250ms", 0.25), ("2 h", 7200), ("500", 0.5)])
def test_durations(text: str, seconds: float) -> None:
    assert read(streaming=True, maxTriggerDelay=text).max_delay == pytest.approx(seconds)


def test_other_options_are_ignored() -> None:
    read({"groupIdPrefix": "x", "path": "/x", "fetchOffset.numRetries": "3", "kafkaConsumer.pollTimeoutMs": "500"})


def test_a_pattern_matches_whole_names() -> None:
    assert ConsumerStrategy(pattern="fli.*").matches("flights")
    assert not ConsumerStrategy(pattern="light").matches("flights")


@pytest.mark.parametrize(
    ("topics", "text"),
    [
        (ConsumerStrategy(subscribe=("a", "b")), "Subscribe[a,b]"),
        (ConsumerStrategy(pattern="a.*"), "SubscribePattern[a.*]"),
        (ConsumerStrategy(assign=(A0,)), "Assign[a-0]"),
    ],
)
def test_topic_selections_are_formatted_as_by_sparks_connector(topics: ConsumerStrategy, text: str) -> None:
    assert str(topics) == text


def test_plain_text_has_no_tls() -> None:
    assert Settings.of(SERVERS).ssl_context() is None


def test_certificates_are_read_from_files_and_options(tmp_path: Path) -> None:
    authority = trustme.CA()
    mine = authority.issue_cert("client.example")
    trusted, identity = tmp_path / "ca.pem", tmp_path / "client.pem"
    authority.cert_pem.write_to_path(str(trusted))
    mine.private_key_and_cert_chain_pem.write_to_path(str(identity))
    by_file = Settings.of(
        {
            **SERVERS,
            "kafka.security.protocol": "SSL",
            "kafka.ssl.truststore.location": str(trusted),
            "kafka.ssl.keystore.location": str(identity),
        }
    ).ssl_context()
    by_text = Settings.of(
        {
            **SERVERS,
            "kafka.security.protocol": "SSL",
            "kafka.ssl.truststore.certificates": authority.cert_pem.bytes().decode(),
            "kafka.ssl.keystore.key": mine.private_key_pem.bytes().decode(),
            "kafka.ssl.keystore.certificate.chain": mine.cert_chain_pems[0].bytes().decode(),
            "kafka.ssl.endpoint.identification.algorithm": "",
        }
    ).ssl_context()
    assert by_file is not None and by_text is not None
    assert by_file.check_hostname and not by_text.check_hostname
    assert by_text.verify_mode == ssl.CERT_REQUIRED
    assert len(by_file.get_ca_certs()) == len(by_text.get_ca_certs()) == 1


def test_a_missing_certificate_is_named() -> None:
    settings = Settings.of(
        {**SERVERS, "kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": "/nowhere.pem"}
    )
    with pytest.raises(ValueError, match="cannot be read"):
        settings.ssl_context()


def test_settings_hide_secrets() -> None:
    given = {**SERVERS, "kafka.security.protocol": "SSL", "kafka.ssl.key.password": "hush"}
    assert "hush" not in repr(Settings.of(given))
    assert "hush" not in repr(Settings.of({**SERVERS, **LOGIN}))


def test_a_token() -> None:
    as_for_java = {
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;",
        "kafka.sasl.login.callback.handler.class": "org.apache.kafka.common.security.oauthbearer."
        "OAuthBearerLoginCallbackHandler",
    }
    for given in (TOKEN, {**TOKEN, **as_for_java}):
        settings = Settings.of({**SERVERS, **given})
        assert (settings.login(), settings.token_file()) == (None, Path("/run/secrets/a token"))
    assert Settings.of({**SERVERS, **LOGIN}).token_file() is None


def test_a_login() -> None:
    settings = Settings.of({**SERVERS, **LOGIN})
    assert (settings.sasl_mechanism, settings.login(), settings.ssl_context()) == (
        "SCRAM-SHA-512",
        ("ada", "hush"),
        None,
    )
    assert Settings.of(SERVERS).login() is None
    over_tls = Settings.of({**SERVERS, **LOGIN, "kafka.security.protocol": "SASL_SSL"})
    assert over_tls.ssl_context() is not None
