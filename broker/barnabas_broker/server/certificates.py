"""The certificates of all listeners that speak TLS: read from the configuration at the start, and again on request.

They change in two ways: on SIGHUP the files are read again, whatever names their certificates have; and with
IncrementalAlterConfigs the keys of a single listener change while the broker runs, checked as Kafka does (KIP-226).
"""

from collections.abc import Mapping
from typing import Final

from barnabas_broker.config import Config, ConfigError
from barnabas_broker.config.keys import (
    CERTIFICATE_KEYS,
    INTER_BROKER_LISTENER_NAME,
    SSL_CLIENT_AUTH,
    SSL_ENABLED_PROTOCOLS,
    SSL_ENDPOINT_IDENTIFICATION_ALGORITHM,
    SSL_KEY_PASSWORD,
    SSL_KEYSTORE_CERTIFICATE_CHAIN,
    SSL_KEYSTORE_KEY,
    SSL_KEYSTORE_LOCATION,
    SSL_PRINCIPAL_MAPPING_RULES,
    SSL_PROTOCOL,
    SSL_TRUSTSTORE_CERTIFICATES,
    SSL_TRUSTSTORE_LOCATION,
)
from barnabas_broker.config.listeners import SASL_PROTOCOLS, TLS_PROTOCOLS, prefix_of
from barnabas_broker.logs import logger
from barnabas_broker.security.principals import PrincipalRules
from barnabas_broker.security.tls import Store, TlsContexts, TlsError, TlsSettings
from barnabas_broker.security.x509_names import hosts
from barnabas_protocol.printable import printable

log = logger("server")

#: Names of a certificate that a log line has.
_SHOWN: Final = 10


class Certificates:
    """The TLS contexts of the listeners that have any.

    Args:
        config: the keys; those of a single listener come first.
        protocols: what each listener speaks, by its name.

    Raises:
        ConfigError: a key or a file cannot be used.
    """

    def __init__(self, config: Config, protocols: Mapping[str, str]) -> None:
        self._config = config
        self._protocols = protocols
        self._advertised: Mapping[str, str] = {}
        try:
            self._contexts = {
                name: TlsContexts(tls_settings(_of_listener(config, name, protocol), name))
                for name, protocol in protocols.items()
                if protocol in TLS_PROTOCOLS
            }
        except TlsError as error:
            raise ConfigError(str(error)) from error

    def __bool__(self) -> bool:
        return bool(self._contexts)

    def of(self, name: str) -> TlsContexts | None:
        """The contexts of the listener `name`; None if it speaks plain text."""
        return self._contexts.get(name)

    def advertise(self, advertised: Mapping[str, str]) -> None:
        """Warn, now and whenever certificates change, if one is not for the host that clients of its listener get.

        Args:
            advertised: the host of each listener, by its name.
        """
        self._advertised = advertised
        for name in self._contexts:
            self._check_host(name)

    def _check_host(self, name: str) -> None:
        host = self._advertised.get(name)
        if host is None:
            return
        try:
            found = hosts(self._contexts[name].certificate)
        except ValueError as error:
            log.warning("the names of the certificate cannot be read", listener=name, reason=str(error))
            return
        if not found.include(host):
            log.warning(
                "the certificate is not for the advertised host: clients that check the name refuse to connect",
                listener=name,
                host=printable(host),
                certificate=printable(", ".join(sorted(found.names | found.addresses)[:_SHOWN])),
                advice="give a certificate with the host as an alternative name, or change advertised.listeners",
            )

    def check(self, values: Mapping[str, str]) -> None:
        """Check the keys of listeners that shall be set at run time. A listener that stays as it is, is not checked.

        Args:
            values: all that are set, by name; others are left out.

        Raises:
            ConfigError: a listener cannot have them.
        """
        for name, contexts in self._contexts.items():
            other = self._settings(name, values)
            if other != contexts.settings:
                try:
                    contexts.check(other, between_brokers=self._between_brokers(name))
                except TlsError as error:
                    raise ConfigError(str(error)) from error

    def apply(self, *, compare: bool) -> None:
        """Take the keys that are set at run time, and read the files of those listeners again.

        A listener whose keys or files cannot be used keeps what it has, and an error is logged.

        Args:
            compare: whether the certificates must be able to take the place of the present ones. At the start they
                need not: they were checked when they were set, and no
                client waits for an answer.
        """
        values = self._config.dynamic
        for name, contexts in self._contexts.items():
            try:
                other = self._settings(name, values)
                given = {key.removeprefix(prefix_of(name)) for key in values}
                if other == contexts.settings and not given & CERTIFICATE_KEYS:
                    continue
                between = self._between_brokers(name)
                contexts.change(contexts.check(other, between_brokers=between) if compare else TlsContexts(other))
            except (ConfigError, TlsError) as error:
                log.error("certificates not reloaded, the earlier ones stay", listener=name, reason=str(error))
            else:
                log.info("certificates reloaded", listener=name)
                self._check_host(name)

    def _between_brokers(self, name: str) -> bool:
        return name == self._config[INTER_BROKER_LISTENER_NAME]

    def _settings(self, name: str, values: Mapping[str, str]) -> TlsSettings:
        """The settings of a listener with these values set at run time.

        Raises:
            ConfigError: keys contradict each other.
        """
        config = Config(self._config.keys, self._config.given, values)
        return tls_settings(_of_listener(config, name, self._protocols[name]), name)

    def reload(self) -> None:
        """Read all files again. A listener whose files cannot be used keeps what it has, and an error is logged."""
        for name, contexts in self._contexts.items():
            try:
                contexts.reload()
            except TlsError as error:
                log.error("certificates not reloaded, the earlier ones stay", listener=name, reason=str(error))
            else:
                log.info("certificates reloaded", listener=name)
                self._check_host(name)


def _of_listener(config: Config, name: str, protocol: str) -> Config:
    """The keys of a listener. As in Kafka, where clients log in they need a certificate only if its own key says so."""
    found = config.of_listener(name)
    if protocol in SASL_PROTOCOLS and f"{prefix_of(name)}{SSL_CLIENT_AUTH.name}" not in config.given:
        found.given[SSL_CLIENT_AUTH.name] = SSL_CLIENT_AUTH.default
    return found


def tls_settings(config: Config, name: str) -> TlsSettings:
    """The keys of TLS for the listener `name`.

    Raises:
        ConfigError: keys contradict each other, or a rule cannot be read.
    """
    chain, key = config[SSL_KEYSTORE_CERTIFICATE_CHAIN], config[SSL_KEYSTORE_KEY]
    if config[SSL_KEYSTORE_LOCATION] and (chain or key):
        raise ConfigError(
            f"listener {name}: ssl.keystore.location and ssl.keystore.certificate.chain or .key are given: give either"
        )
    if bool(chain) != bool(key):
        raise ConfigError(f"listener {name}: give both ssl.keystore.certificate.chain and ssl.keystore.key, or neither")
    if config[SSL_TRUSTSTORE_LOCATION] and config[SSL_TRUSTSTORE_CERTIFICATES]:
        raise ConfigError(
            f"listener {name}: ssl.truststore.location and ssl.truststore.certificates are given: give either"
        )
    newest = config[SSL_PROTOCOL]
    versions = tuple(version for version in config[SSL_ENABLED_PROTOCOLS] if version <= newest)
    if not versions:
        raise ConfigError(f"listener {name}: ssl.protocol={newest} leaves none of ssl.enabled.protocols")
    try:
        rules = PrincipalRules(config[SSL_PRINCIPAL_MAPPING_RULES])
    except ValueError as error:
        raise ConfigError(f"{SSL_PRINCIPAL_MAPPING_RULES.name}: {error}") from error
    location = SSL_KEYSTORE_LOCATION.name
    return TlsSettings(
        listener=name,
        chain=Store(SSL_KEYSTORE_CERTIFICATE_CHAIN.name if chain else location, config[SSL_KEYSTORE_LOCATION], chain),
        key=Store(SSL_KEYSTORE_KEY.name, "", key),
        password=config[SSL_KEY_PASSWORD],
        trust=Store(
            SSL_TRUSTSTORE_CERTIFICATES.name if config[SSL_TRUSTSTORE_CERTIFICATES] else SSL_TRUSTSTORE_LOCATION.name,
            config[SSL_TRUSTSTORE_LOCATION],
            config[SSL_TRUSTSTORE_CERTIFICATES],
        ),
        client_auth=config[SSL_CLIENT_AUTH],
        versions=versions,
        check_names=config[SSL_ENDPOINT_IDENTIFICATION_ALGORITHM] == "https",
        rules=rules,
    )
