"""Card of a model under memory faults: its remaining quality, with and without a detector."""

from collections.abc import Sequence
from dataclasses import dataclass

from shunter.engine.metrics import Metrics
from shunter.extensions.compression.robustness.injection import WORDS, ErrorKind
from shunter.extensions.compression.robustness.trial import ALONE, ANSWERS, FaultResult
from shunter.reporting.card.document import Paragraph, Section, Table

TITLE = "Under errors of the memory"
_CHECKS = {
    True: "as far as the stored check bits detect them",
    False: "which changes nothing, because no check bits are stored with the model",
}
COLUMNS = ("rate", "errors", "AUC", "in range", "corrected", "excluded", "members", "best alone")


@dataclass(frozen=True, kw_only=True)
class RobustnessCard:
    """Results under memory faults.

    Attributes:
        title: Title of the model.
        kind: Fault type.
        members: Number of members.
        stored_bytes: Number of stored bytes.
        undamaged: Quality of the undamaged model, on the same rows.
        found: Results at each rate, the lowest first.
        alone: Results of the best single member, without the exclusion of members; empty for a single model.
        floor: AUC that counts as sufficient.
        has_check_bits: True if check bits are stored.
        repeats: Number of random draws at each rate.
    """

    title: str
    kind: ErrorKind
    members: int
    stored_bytes: int
    undamaged: Metrics
    found: tuple[FaultResult, ...]
    alone: tuple[FaultResult, ...]
    floor: float
    has_check_bits: bool
    repeats: int

    @property
    def sentence(self) -> str:
        """Return the tolerated fault rates in one sentence."""
        with_it, without = (self._withstood(answer) for answer in (ANSWERS[-1], ANSWERS[0]))
        kept = "none of these rates" if with_it is None else f"{with_it:g} of {WORDS[self.kind]}"
        bare = "none" if without is None else f"{without:g}"
        return (
            f"{self.title} keeps an AUC of {self.floor:.4f} (undamaged {self.undamaged.auc:.4f}) up to {kept} with a "
            f"detector of damage, and up to {bare} without, in the mean of {self.repeats} draws."
        )

    @property
    def metrics(self) -> dict[str, float]:
        """Return the metrics for the MLflow run."""
        figures: dict[str, float] = {"robustness.auc.undamaged": self.undamaged.auc}
        for one in self.found:
            for answer in ANSWERS:
                figures[f"robustness.auc.{answer}.{one.errors.rate:g}"] = one.mean_auc(answer)
                figures[f"robustness.ne.{answer}.{one.errors.rate:g}"] = one.mean_ne(answer)
        for one in self.alone:
            figures[f"robustness.auc.best_member.{one.errors.rate:g}"] = one.mean_auc(ALONE)
        return figures

    def _withstood(self, answer: str) -> float | None:
        """Return the last fault rate before the AUC under a protection falls below the floor; None if there is none."""
        highest = None
        for one in self.found:
            if one.mean_auc(answer) < self.floor:
                break
            highest = one.errors.rate
        return highest


def rows_of(card: RobustnessCard) -> list[tuple[str, ...]]:
    """Return one row of the card's table per fault rate: rate, faults, AUC by protection, kept members."""
    alone = {one.errors.rate: f"{one.mean_auc(ALONE):.4f}" for one in card.alone}
    return [
        (
            f"{one.errors.rate:g}",
            f"{one.hit:,.0f}",
            *(f"{one.mean_auc(answer):.4f}" for answer in ANSWERS),
            f"{one.left:.1f}/{card.members}",
            alone.get(one.errors.rate, "-"),
        )
        for one in card.found
    ]


def sections_of(card: RobustnessCard) -> Sequence[Section]:
    """Return the sections of the model card on memory faults."""
    how = (
        f"AUC on rows of the test part: mean of {card.repeats} samples of {WORDS[card.kind]} with the rate, in all "
        f"{card.stored_bytes:,} stored bytes. Without a detector; with numbers outside of a tensor's range set to zero "
        f"(in range); also with flipped bits corrected before, {_CHECKS[card.has_check_bits]}; also without damaged "
        "members, which are detected by predictions on training rows, without labels. The last is not measured for the "
        "single best member. Errors are *simulated*."
    )
    return [Section(TITLE, [Paragraph(card.sentence), Paragraph(how), Table(COLUMNS, rows_of(card))])]
