"""Quality of a model under memory faults, averaged over several random draws."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shunter.engine.metrics import Metrics, compute_metrics
from shunter.extensions.compression.bench import EvaluationSample
from shunter.extensions.compression.robustness.memory import Memory, MemoryErrors

# Protections against faults, the cheapest first; each one includes those before it.
ANSWERS = ("nothing", "values", "bits", "members")
ALONE = "bits"  # strongest protection of a single model
REPEATS = 5
CANARY_ROWS = 512  # rows whose predictions the detector compares


@dataclass(frozen=True, kw_only=True)
class FaultResult:
    """Results of a model at one kind and rate of faults.

    Attributes:
        errors: Kind and rate of the faults.
        auc: AUC of each draw, by protection.
        ne: NE of each draw, by protection.
        hit: Mean number of bits or rows with faults.
        left: Mean number of members that the detector keeps.
    """

    errors: MemoryErrors
    auc: dict[str, tuple[float, ...]]
    ne: dict[str, tuple[float, ...]]
    hit: float
    left: float

    def mean_auc(self, answer: str) -> float:
        """Return the AUC under one of the protections in `ANSWERS`, averaged over the random draws of faults."""
        return float(np.mean(self.auc[answer]))

    def mean_ne(self, answer: str) -> float:
        """Return the NE under one of the protections in `ANSWERS`, averaged over the random draws of faults."""
        return float(np.mean(self.ne[answer]))


def measure_under_faults(
    memory: Memory,
    errors: MemoryErrors,
    test: EvaluationSample,
    canaries: EvaluationSample,
    *,
    repeats: int = REPEATS,
    seed: int = 0,
    answers: Sequence[str] = ANSWERS,
) -> FaultResult:
    """Inject faults into a model repeatedly, evaluate the damaged model each time, and finally restore the model.

    Args:
        memory: Model in memory.
        errors: Kind and rate of the faults.
        test: Rows for the evaluation.
        canaries: Rows for the detector, which compares predictions with those of the undamaged model.
        repeats: Number of draws.
        seed: Seed of the first draw; draw number i uses `seed + i`.
        answers: Protections to evaluate.
    """
    memory.load(is_guarded=False)
    undamaged = memory.combine(members_logits(memory, canaries))
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
            memory.load(is_guarded=True, is_corrected=True)
            logits = members_logits(memory, test)
            now = members_logits(memory, canaries)
            kept = memory.members_to_keep(undamaged, now) if memory.members > 1 else [0]
            left.append(len(kept))
            without_checks = [] if memory.has_check_bits else [("values", None)]
            for answer, members in (*without_checks, ("bits", None), ("members", kept)):
                if answer in answers:
                    figures[answer].append(_quality(test, memory.combine(logits, members)))
    memory.load(is_guarded=False)
    auc, ne = ({answer: tuple(one[place] for one in found) for answer, found in figures.items()} for place in (0, 1))
    return FaultResult(errors=errors, auc=auc, ne=ne, hit=float(np.mean(hit)), left=float(np.mean(left)))


def members_logits(memory: Memory, rows: EvaluationSample) -> np.ndarray:
    """Return the log odds of each member, `[members, rows]`, or `[members, rows, tasks]`."""
    return np.stack([rows.logits(member) for member in memory.models])


def quality_on(rows: EvaluationSample, logits: np.ndarray) -> Metrics:
    """Return the quality of the main label on the given rows, with their weights; rows without a label have weight 0.

    Args:
        rows: Evaluation sample.
        logits: Log odds, `[rows]` or `[rows, tasks]`.
    """
    main = logits.reshape(len(logits), -1)[:, 0]
    return compute_metrics(rows.labels, main, None if (rows.weights == 1).all() else rows.weights)


def _quality(rows: EvaluationSample, combined: np.ndarray) -> tuple[float, float]:
    found = quality_on(rows, combined)
    return found.auc, found.ne
