"""Prometheus metrics of the server, at `/metrics`."""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from shunter.ingestion.encoding.value_counts import LABELS, ValueCounts, kind_of
from shunter.models.embeddings.cache_counts import LookupCounts

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
ROWS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)


class Metrics:
    """Prometheus metrics of one server.

    Attributes:
        requests: Number of answers, by endpoint and status.
        request_seconds: Time from the head of a request to its answer, by endpoint.
        rows: Number of scored rows.
        unusable_values: Number of values that the model does not know or cannot read, by column and kind.
        batch_rows: Number of rows in each scored batch.
        batch_requests: Number of requests in each scored batch.
        score_seconds: Time to score a batch.
        waiting_rows: Number of rows that wait to be scored.
        model: 1 for the served version of the model.
        takeovers: Number of attempts to replace the served version, by result (`done` or `failed`).
        index_recall: Share of the exact best items that the index finds, by the number of requested items.
        index_seconds: Time to build the index; 0 without an index.
        tables: Function that returns the numbers of embedding rows that the served model read from memory and from the
            file.
    """

    tables: Callable[[], LookupCounts] = LookupCounts

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self.requests = Counter(
            "shunter_requests", "Answers by endpoint and status.", ("endpoint", "status"), registry=registry
        )
        self.request_seconds = Histogram(
            "shunter_request_seconds",
            "Time from the head of a request to its answer.",
            ("endpoint",),
            buckets=SECONDS,
            registry=registry,
        )
        self.rows = Counter("shunter_rows", "Rows that got a score.", registry=registry)
        self.unusable_values = Counter(
            "shunter_unusable_values",
            "Values that the model does not know or cannot read, by column and kind.",
            ("column", "kind"),
            registry=registry,
        )
        self.batch_rows = Histogram(
            "shunter_batch_rows", "Rows that were scored together.", buckets=ROWS, registry=registry
        )
        self.batch_requests = Histogram(
            "shunter_batch_requests", "Requests that were scored together.", buckets=ROWS, registry=registry
        )
        self.score_seconds = Histogram(
            "shunter_score_seconds",
            "Time to score a batch of requests.",
            buckets=SECONDS,
            registry=registry,
        )
        self.waiting_rows = Gauge("shunter_waiting_rows", "Rows that wait to be scored.", registry=registry)
        self.model = Gauge("shunter_model", "1 for the version that is served.", ("name", "version"), registry=registry)
        self.takeovers = Counter(
            "shunter_takeovers", "Attempts to replace the served version, by result.", ("result",), registry=registry
        )
        self.index_recall = Gauge(
            "shunter_index_recall",
            "Share of the exact best items that the index finds, by the length of the list, as measured at the start.",
            ("items",),
            registry=registry,
        )
        self.index_seconds = Gauge("shunter_index_build_seconds", "Time to build the index.", registry=registry)

        registry.register(_Tables(self))

    def count(self, rows: int, counts: ValueCounts) -> None:
        """Count the rows of a request and their unknown and unreadable values."""
        self.rows.inc(rows)
        for flag in LABELS:
            for column, number in counts.numbers(flag).items():
                self.unusable_values.labels(column, kind_of(flag)).inc(number)

    def page(self) -> bytes:
        """Return all metrics in the format of Prometheus."""
        return generate_latest(self._registry)


class _Tables(Collector):
    """Collector of the embedding tables' own counts, which are read when the metrics page is requested."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Yield the current metrics."""
        counts = self._metrics.tables()
        rows = CounterMetricFamily(
            "shunter_table_rows", "Rows of embedding tables in a file, by where they were found.", labels=("place",)
        )
        for place in ("pinned", "cached", "read"):
            rows.add_metric((place,), getattr(counts, place))
        yield rows
        yield CounterMetricFamily("shunter_table_lists", "Lists of ids whose sum was cached.", value=counts.pooled)
        yield CounterMetricFamily(
            "shunter_table_read_bytes", "Bytes that were read from the file.", value=counts.read_bytes
        )
        yield CounterMetricFamily(
            "shunter_table_read_seconds", "Time that scoring waited for the file.", value=counts.read_seconds
        )
