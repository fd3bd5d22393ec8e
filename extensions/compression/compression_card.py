"""Card of a compressed model: the compressions that were tried, their results, and the best one."""

from collections.abc import Sequence
from dataclasses import dataclass

from shunter.engine.metrics import Metrics
from shunter.engine.passes.record import PassRecord
from shunter.extensions.compression.subject import QualityLimit
from shunter.reporting.card.document import Paragraph, Section, Table

MILLISECONDS = "batch_milliseconds"  # figure of a compression
COLUMNS = ("compression", "AUC or RMSE", "NE", "ms a batch", "bytes", "outcome")


@dataclass(frozen=True, kw_only=True)
class CompressionCard:
    """Results of a compression.

    Attributes:
        title: Title of the original model.
        winner: Best compression; None if the model is not compressed.
        records: Records of all compressions.
        batch_rows: Rows per batch of the time measurement.
        limit: Limit on the quality on validation.
        test: Quality on the test part, of the original and of the best model.
    """

    title: str
    winner: str | None
    records: tuple[PassRecord, ...]
    batch_rows: int
    limit: QualityLimit
    test: tuple[Metrics, Metrics]

    @property
    def sentence(self) -> str:
        """Return the result of the compression in one sentence."""
        limit, (before, after) = self.limit, map(self.limit.of, self.test)
        if self.winner is None:
            return f"{self.title} is not compressed: none that keeps {limit.label} {limit.bound:.4f} is faster."
        kept = next(record for record in self.records if record.name == self.winner)
        return (
            f"{self.winner} makes {self.title} {kept.reason} on validation; on the test part the {limit.label} goes "
            f"from {before:.4f} to {after:.4f}."
        )


def comparison(records: Sequence[PassRecord]) -> list[tuple[str, ...]]:
    """Return the rows of the card's table: the original model, then each compression."""
    known = [record for record in records if record.figures]
    rows: list[tuple[str, ...]] = []
    if known:
        before = {one.name: one.before for one in known[0].figures}
        rows.append(("none", *_cells(before, "-"), "the original model"))
    for record in records:
        after = {one.name: one.after for one in record.figures}
        times = next((one for one in record.figures if one.name == MILLISECONDS), None)
        # The original is measured in turns with each compression, so that its time differs by row.
        shown = f"{times.after:.2f} (original {times.before:.2f})" if times else "-"
        outcome = f"{'keeps the limits' if record.is_kept else 'refused'}: {record.reason}"
        rows.append((record.name, *_cells(after, shown), outcome))
    return rows


def _cells(figures: dict[str, float], milliseconds: str) -> tuple[str, str, str, str]:
    if not figures:
        return "-", "-", milliseconds, "-"
    quality = next(figures[name] for name in ("auc", "rmse") if name in figures)
    return f"{quality:.4f}", f"{figures['ne']:.4f}", milliseconds, f"{figures['weight_bytes']:,.0f}"


def card_of(card: CompressionCard) -> tuple[str, list[Section]]:
    """Return title and sections of the card."""
    how = (
        f"{card.limit.label} and NE on the validation part; milliseconds to score {card.batch_rows:,} rows as "
        "`shunter predict` and `shunter serve` do, in turns with the original model; bytes of the weights. The "
        f"limit is {card.limit.label} {card.limit.bound:.4f}."
    )
    table = Table(COLUMNS, comparison(card.records))
    return f"Compression of {card.title}", [
        Section("In short", [Paragraph(card.sentence)]),
        Section("Compressions", [Paragraph(how), table]),
    ]
