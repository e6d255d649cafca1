"""Spark writes and reads as a user whom a token names: OAUTHBEARER over TLS, in the driver and its workers."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from barnabas_client.loop_thread import close_loop_thread
from tests.certificates import Authority
from tests.interop.barnabas_server import BarnabasBroker
from tests.interop.server import free_port
from tests.tokens import TokenMaker

# `test_login.py` and the client's tests check the same without Spark.
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]


class Tokens:
    """A broker that takes tokens over TLS only, the file with the token of its clients, and the options for Spark."""

    def __init__(self, folder: Path) -> None:
        self.maker, authority = TokenMaker(folder), Authority(folder)
        self.file = folder / "token"
        self.renew()
        inside, port = free_port(), free_port()
        self.settings = {
            "listeners": f"INSIDE://127.0.0.1:{inside},OUTSIDE://127.0.0.1:{port}",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:SASL_SSL",
            "inter.broker.listener.name": "INSIDE",
            **self.maker.settings("OUTSIDE"),
            "listener.name.outside.ssl.keystore.location": str(authority.issue("broker")),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            # Whoever writes without a token is refused.
            "super.users": "User:spark",
        }
        self.inside = inside
        self.options = {
            "kafka.bootstrap.servers": f"127.0.0.1:{port}",
            "kafka.security.protocol": "SASL_SSL",
            "kafka.ssl.truststore.location": str(authority.trust),
            "kafka.sasl.mechanism": "OAUTHBEARER",
            "kafka.sasl.oauthbearer.token.endpoint.url": self.file.as_uri(),
            # As a configuration of Kafka's clients has them.
            "kafka.sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;",
            "kafka.sasl.login.callback.handler.class": "org.apache.kafka.common.security.oauthbearer."
            "OAuthBearerLoginCallbackHandler",
        }

    def renew(self, **claims: str) -> None:
        self.file.write_text(self.maker.token("spark", 3600, **claims))


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tokens]:
    made = Tokens(tmp_path_factory.mktemp("tokens"))
    with BarnabasBroker(made.settings, port=made.inside):
        yield made
        close_loop_thread()


def test_spark_writes_and_reads_with_a_token(spark: SparkSession, tokens: Tokens) -> None:
    rows = spark.createDataFrame([(str(number),) for number in range(20)], "value string")
    rows.write.format("barnabas").options(**tokens.options, topic="t").mode("append").save()
    found = spark.read.format("barnabas").options(**tokens.options, subscribe="t").load().collect()
    assert sorted(int(row.value) for row in found) == list(range(20))


def test_a_token_that_is_refused(spark: SparkSession, tokens: Tokens) -> None:
    tokens.renew(aud="another")
    # Other options, so that no connection is open yet.
    options = {**tokens.options, "kafka.client.id": "refused"}
    with pytest.raises(PySparkException, match="invalid_token"):
        spark.read.format("barnabas").options(**options, subscribe="t").load().collect()
    tokens.renew()
