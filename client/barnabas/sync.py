"""Consumers, producer and admin client without ``await``: see :mod:`barnabas_client.sync`."""

from barnabas_client.sync import Admin, BatchReceipt, Consumer, Producer, Receipt, ShareConsumer, ShareRecord

__all__ = ["Admin", "BatchReceipt", "Consumer", "Producer", "Receipt", "ShareConsumer", "ShareRecord"]
