"""The metrics of :meth:`Producer.metrics`.

Names and units are those of Kafka's producer (``SenderMetricsRegistry.java``, ``BufferPool.java``): ``-rate`` is per
second over the last 30 seconds, ``-avg`` and ``-max`` cover the same time, times are in milliseconds. Pure.
"""

from barnabas_client.meters import Meter, Metrics, in_ms


class ProducerMeters:
    """The meters of one producer. Times are of the event loop's clock, in seconds."""

    def __init__(self, now: float) -> None:
        #: Records of each batch that was sent; a batch that is sent again counts again.
        self.records = Meter(now)
        #: Bytes of each batch that was sent, compressed.
        self.bytes = Meter(now)
        #: Seconds from a batch's first record to its request.
        self.queue_time = Meter(now)
        #: Seconds from a Produce request to its response.
        self.request_latency = Meter(now)
        #: Records that were sent again, by batch.
        self.retries = Meter(now)
        #: Records that were not delivered, by batch.
        self.errors = Meter(now)

    def values(self, buffer: int, used: int, now: float) -> Metrics:
        """The metrics at a time.

        Args:
            buffer: `buffer_memory`, in bytes.
            used: bytes of it in use.
            now: the time.
        """
        records, size, latency = self.records, self.bytes, self.request_latency
        return {
            "record-send-rate": records.rate(now),
            "record-send-total": round(records.total),
            "record-retry-rate": self.retries.rate(now),
            "record-retry-total": round(self.retries.total),
            "record-error-rate": self.errors.rate(now),
            "record-error-total": round(self.errors.total),
            "records-per-batch-avg": records.mean(now),
            "byte-rate": size.rate(now),
            "byte-total": round(size.total),
            "batch-size-avg": size.mean(now),
            "batch-size-max": size.maximum(now),
            "record-queue-time-avg": in_ms(self.queue_time.mean(now)),
            "record-queue-time-max": in_ms(self.queue_time.maximum(now)),
            "request-rate": latency.frequency(now),
            "request-total": latency.count,
            "request-latency-avg": in_ms(latency.mean(now)),
            "request-latency-max": in_ms(latency.maximum(now)),
            "buffer-total-bytes": buffer,
            "buffer-available-bytes": max(buffer - used, 0),
        }
