"""Applies the configuration of brokers that was set at run time."""

from collections.abc import Callable, Sequence

from barnabas_broker.cluster.image import BrokerConfigured, Event, Image
from barnabas_broker.cluster.metadata import ClusterMetadata
from barnabas_broker.config import Config


def follow_configuration(cluster: ClusterMetadata, config: Config, node_id: int, changed: Callable[..., None]) -> None:
    """Set in `config`, now and after each change, what the cluster image has for all brokers (""), and for this one.

    Args:
        cluster: the cluster image.
        config: the broker's configuration.
        node_id: the broker's id.
        changed: called with ``compare``, which is False for the first time, after the keys of this broker have changed.
    """

    def configure(image: Image, events: Sequence[Event], *, compare: bool = True) -> None:
        if any(isinstance(event, BrokerConfigured) for event in events):
            before = config.dynamic
            config.set_dynamic(image.broker_configs.get(str(node_id), {}), image.broker_configs.get("", {}))
            mine = any(isinstance(event, BrokerConfigured) and event.name == str(node_id) for event in events)
            if mine and (before or config.dynamic):
                changed(compare=compare)

    config.set_dynamic({}, {})
    configure(cluster.image, cluster.image.snapshot(), compare=False)
    cluster.subscribe(configure)
