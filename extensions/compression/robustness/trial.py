"""What is left of a model's quality under errors of the memory, in the mean of several draws."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shunter.engine.metrics import Metrics, compute_metrics
from shunter.extensions.compression.robustness.injection import WORDS, MemoryErrors
from shunter.extensions.compression.robustness.memory import Detector, Memory
from shunter.extensions.compression.some_rows import SomeRows

# What answers the errors, the cheapest first; each does what the one before does, too.
ANSWERS = ("nothing", "values", "bits", "members")
ALONE = "bits"  # all that helps a single model
REPEATS = 5
CANARY_ROWS = 512  # that a detector watches


@dataclass(frozen=True, kw_only=True)
class Withstood:
    """A model under one kind and rate of errors.

    Attributes:
        errors: What was drawn.
        auc: AUC of each draw, by what answers the errors.
        ne: The same of the NE.
        hit: Bits or rows with errors, in the mean.
        left: Members that the detector left, in the mean.
    """

    errors: MemoryErrors
    auc: dict[str, tuple[float, ...]]
    ne: dict[str, tuple[float, ...]]
    hit: float
    left: float

    def mean_auc(self, answer: str) -> float:
        """Mean over the draws."""
        return float(np.mean(self.auc[answer]))

    def mean_ne(self, answer: str) -> float:
        """Mean over the draws."""
        return float(np.mean(self.ne[answer]))

    @property
    def words(self) -> str:
        """For instance `0.0001 of bits that flip`."""
        return f"{self.errors.rate:g} of {WORDS[self.errors.kind]}"


def withstand(
    memory: Memory,
    errors: MemoryErrors,
    test: SomeRows,
    canaries: SomeRows,
    *,
    repeats: int = REPEATS,
    seed: int = 0,
    answers: Sequence[str] = ANSWERS,
) -> Withstood:
    """Damage a model again and again and score it each time; it ends as it began.

    Args:
        memory: The model.
        errors: What is drawn.
        test: Rows that it is scored on.
        canaries: Rows that the detector watches; what the model says of them undamaged is what it expects.
        repeats: How often.
        seed: Seed of the first draw, that of the next is one higher.
        answers: What is to answer the errors.
    """
    memory.load(is_guarded=False)
    detector = Detector(memory, memory.combine(members_logits(memory, canaries)))
    figures: dict[str, list[tuple[float, float]]] = {answer: [] for answer in answers}
    hit, left = [], []
    for draw in range(repeats):
        with memory.damaged(errors, seed + draw) as count:
            hit.append(count)
            if "nothing" in answers:
                memory.load(is_guarded=False)
                figures["nothing"].append(_quality(test, memory.combine(members_logits(memory, test))))
            if "values" in answers and memory.has_check_bits:
                memory.load(is_guarded=True)
                figures["values"].append(_quality(test, memory.combine(members_logits(memory, test))))
            memory.load(is_guarded=True, is_put_right=True)
            logits = members_logits(memory, test)
            kept = detector.believed(members_logits(memory, canaries)) if memory.members > 1 else [0]
            left.append(len(kept))
            without_checks = [] if memory.has_check_bits else [("values", None)]
            for answer, believed in (*without_checks, ("bits", None), ("members", kept)):
                if answer in answers:
                    figures[answer].append(_quality(test, memory.combine(logits, believed)))
    memory.load(is_guarded=False)
    auc, ne = ({answer: tuple(one[place] for one in found) for answer, found in figures.items()} for place in (0, 1))
    return Withstood(errors=errors, auc=auc, ne=ne, hit=float(np.mean(hit)), left=float(np.mean(left)))


def members_logits(memory: Memory, rows: SomeRows) -> np.ndarray:
    """What each member says, `[members, rows]`, or `[members, rows, tasks]`."""
    return np.stack([rows.logits(member) for member in memory.models])


def quality_on(rows: SomeRows, logits: np.ndarray) -> Metrics:
    """Quality of the main label on some rows, each with its weight; those without a label have none.

    Args:
        rows: The rows.
        logits: Log odds, `[rows]` or `[rows, tasks]`.
    """
    main = logits.reshape(len(logits), -1)[:, 0]
    return compute_metrics(rows.labels, main, None if (rows.weights == 1).all() else rows.weights)


def _quality(rows: SomeRows, combined: np.ndarray) -> tuple[float, float]:
    found = quality_on(rows, combined)
    return found.auc, found.ne
