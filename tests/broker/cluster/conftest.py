"""A real etcd, for tests that also run against the model of it."""

from tests.cluster.conftest import etcd

__all__ = ["etcd"]
