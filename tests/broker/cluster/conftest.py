"""A real etcd, for what is run against the model of it too."""

from tests.cluster.conftest import etcd

__all__ = ["etcd"]
