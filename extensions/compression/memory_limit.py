"""Packing of an ensemble within a limit on bytes: each member is packed, and members are added while the loss falls."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from torch import Tensor

from shunter.engine.checkpoint.checked_files import WEIGHTS
from shunter.engine.checkpoint.storage import load_model
from shunter.engine.config import Execution, SelectBy
from shunter.engine.data.arrays import read_array
from shunter.engine.data.dataset import Dataset
from shunter.engine.ensemble.calibration import log_losses
from shunter.engine.ensemble.ensemble_selection import EnsembleSelection, PackedResult, combined_as, select_ensemble
from shunter.engine.ensemble.result import FILE_OVERHEAD_BYTES, MemoryFit, TriedSize
from shunter.engine.ensemble.selection import halves
from shunter.engine.loop.evaluation import evaluate
from shunter.engine.metrics import Metrics, compute_task_metrics
from shunter.engine.results import Evaluation
from shunter.engine.trained_model import TrainedModel
from shunter.errors import InfeasibleError
from shunter.extensions.compression.bench import EvaluationSample
from shunter.extensions.compression.packing import Form, pack, unpack
from shunter.extensions.compression.robustness.memory import Memory, MemoryErrors
from shunter.extensions.compression.robustness.trial import ANSWERS, CANARY_ROWS, FaultResult, measure_under_faults
from shunter.models.ensemble import Ensemble
from shunter.models.registry import Model
from shunter.models.spec import ModelSpec

# Values to try, the least lossy first; fewer bits and units leave room for more rows.
CHOICES: dict[str, tuple[float, ...]] = {
    "layer_bits": (8, 4),
    "unit_share": (1.0, 0.75, 0.5, 0.25),
    "row_bits": (8, 4, 2),
}
ALIKE = 1.0002  # ratio to the unpacked model's log loss at which the search ends
JUDGED_BATCHES = 3  # of 4,096 rows, for the evaluation under bit flips
IDS_AT_ONCE = 1 << 22


@dataclass(frozen=True, kw_only=True)
class Packed:
    """Model in packed form: its options, weights and loss.

    Attributes:
        form: Packing options.
        tensors: Packed weights by name, from `shunter.extensions.compression.packing.pack`.
        loss: Log loss on a sample of validation rows, in nats.
    """

    form: Form
    tensors: Mapping[str, Tensor]
    loss: float

    @property
    def label(self) -> str:
        """Label such as `rows of 4 bits, layers of 8 bits, 0.5 of the hidden units`."""
        units = "" if self.form.unit_share == 1 else f", {self.form.unit_share:g} of the hidden units"
        checks = ", with check bits" if self.form.has_check_bits else ""
        return f"rows of {self.form.row_bits} bits, layers of {self.form.layer_bits} bits{units}{checks}"


def log_loss(rows: EvaluationSample, model: Model) -> float:
    """Return the mean log loss of the main label on a sample of rows, in nats."""
    return float(np.average(log_losses(rows.labels, rows.main_logits(model)), weights=rows.weights))


def best_form(
    model: Model,
    scratch: Model,
    uses: Sequence[np.ndarray],
    limit: int,
    rows: EvaluationSample,
    *,
    has_check_bits: bool = False,
) -> Packed | None:
    """Search for the packing options with the least log loss within a file size, by one pass of hill climbing.

    The search begins with 8 bits and all units. It then changes the bits of the layers, the share of the units and the
    bits of the rows in this order. Each option is set to the value with the least loss. The most used table rows are
    kept, as many as fit. E2CNN searches the number of channels in the same way, but no bits.

    Args:
        model: Model on the CPU in evaluation mode; it does not change.
        scratch: Model of the same architecture, whose weights are overwritten.
        uses: Number of lookups of each row in training, one array for each table.
        limit: Largest file size in bytes.
        rows: Evaluation sample on which the options are compared.
        has_check_bits: Whether check bits are stored with the weights; they count towards the limit.

    Returns:
        Best packed model; None if no options are small enough.
    """

    def tried(form: Form) -> Packed | None:
        tensors = pack(model, form, uses, limit)
        if tensors is None:
            return None
        scratch.load_state_dict(unpack(model, tensors))
        return Packed(form=form, tensors=tensors, loss=log_loss(rows, scratch))

    return climb(tried, Form(has_check_bits=has_check_bits), enough=log_loss(rows, model) * ALIKE)


def climb(tried: Callable[[Form], Packed | None], form: Form = Form(), *, enough: float) -> Packed | None:  # noqa: B008
    """Return the packed model with the least log loss of one pass over the options in `CHOICES`, from `form`.

    The pass is skipped if `form` itself has a log loss of at most `enough`. None if no options fit.
    """
    best = tried(form)
    if best is not None and best.loss <= enough:
        return best
    for name, values in CHOICES.items():
        for value in values[1:]:
            found = tried(replace(form, **{name: value}))
            if found is not None and (best is None or found.loss < best.loss):
                best = found
        form = best.form if best is not None else replace(form, **{name: values[-1]})
    return best


@dataclass(frozen=True, kw_only=True)
class PackedEnsemble:
    """Ensemble with a part of its members in packed form.

    Attributes:
        selection: Ensemble selection with the weights of all members.
        logits: Log odds on validation, `[members, rows]`; packed members predict with their packed weights.
        packed: Packed members by index.
    """

    selection: EnsembleSelection
    logits: np.ndarray
    packed: dict[int, Packed]


@dataclass(frozen=True, kw_only=True)
class EnsemblePacker:
    """Packer of the members of an ensemble.

    Attributes:
        dataset: Data set that the members were trained on.
        members: All members.
        evaluations: Predictions of each unpacked member on validation.
        allowed: Indices of the members that may be combined.
        limit: Largest number of bytes of the weights.
        most: Largest number of members with a weight; None for no limit.
        seed: Seed of the split of validation into halves.
        select_by: Metric by which numbers of members are compared.
        threads: Number of threads of the scoring, which runs on the CPU.
        error_rate: Share of stored bits that flip in deployment; None for no bit flips.
    """

    dataset: Dataset
    members: Sequence[TrainedModel]
    evaluations: Sequence[Evaluation]
    allowed: Sequence[int]
    limit: int
    most: int | None
    seed: int
    select_by: SelectBy
    threads: int
    error_rate: float | None = None

    def shrink(self, selection: EnsembleSelection) -> PackedResult:
        """Pack one, two, three, ... of the best members into the limit, in equal parts, while the quality improves.

        Each number of members is evaluated on the half of validation on which no ensemble weights are fitted. With an
        error rate, the evaluation includes bit flips and the detector of `robustness` (E2CNN chooses the number of
        members for an expected rate).

        Args:
            selection: Selection without a limit.

        Raises:
            InfeasibleError: Not even one model fits.
            CheckpointError: A member's files are damaged.
            DataError: An array cannot be read.
        """
        logits = np.stack([one.logits for one in self.evaluations])
        ne_before = self._quality(selection.combine(logits), slice(None)).ne
        before = sum((self.members[index].directory / WEIGHTS).stat().st_size for index in selection.chosen)
        fit = MemoryFit(
            limit_bytes=self.limit, bytes_before=before, bytes_after=before, ne_before=ne_before, ne_after=ne_before
        )
        if before + FILE_OVERHEAD_BYTES <= self.limit and self.error_rate is None:
            return PackedResult(selection=selection, logits=logits, tensors={}, fit=fit)
        order = self._order(selection)
        best: PackedEnsemble | None = None
        best_loss, tried = np.inf, []
        for count in range(1, min(len(order), self.most or len(order)) + 1):
            found = self._packed(order[:count])
            if found is None:
                break
            held_out = self._quality(found.selection.combine(found.logits), self._second)
            damaged, loss, ne_under_errors = self._under_errors(found), held_out.loss_by(self.select_by), None
            if damaged is not None:
                ne_under_errors = damaged.mean_ne(ANSWERS[-1])
                loss = -damaged.mean_auc(ANSWERS[-1]) if self.select_by == "auc" else ne_under_errors
            size = sum(sum(one.nbytes for one in packed.tensors.values()) for packed in found.packed.values())
            tried.append(TriedSize(members=count, weight_bytes=size, ne=held_out.ne, ne_under_errors=ne_under_errors))
            if best is not None and not (found.selection.is_ensemble and loss < best_loss):
                break
            best, best_loss = found, loss
        if best is None:
            raise InfeasibleError(
                f"No member of the ensemble fits into the {self.limit:,} bytes of --ensemble-memory, even "
                f"with the fewest rows and bits (the uncompressed model takes {before:,}): raise the "
                "limit, or try a smaller model."
            )
        outcome = {
            "bytes_after": 0,  # set when the model is saved
            "ne_after": self._quality(best.selection.combine(best.logits), slice(None)).ne,
            "error_rate": self.error_rate,
            "tried": tuple(tried),
            "forms": {self.members[index].name: packed.label for index, packed in best.packed.items()},
        }
        fit = fit.model_copy(update=outcome)
        tensors = {index: packed.tensors for index, packed in best.packed.items()}
        return PackedResult(selection=best.selection, logits=best.logits, tensors=tensors, fit=fit)

    def _order(self, selection: EnsembleSelection) -> list[int]:
        """Return members in the order of packing: the best single member, then by ensemble weight, then by quality."""
        shares = selection.weights.reshape(len(self.members), -1).max(axis=1)
        return sorted(
            self.allowed,
            key=lambda index: (
                index != selection.best_single,
                -shares[index],
                self.evaluations[index].metrics.loss_by(self.select_by),
            ),
        )

    def _packed(self, chosen: Sequence[int]) -> PackedEnsemble | None:
        """Pack the chosen members into equal parts of the limit and evaluate the result; None if one does not fit."""
        execution = Execution(threads=self.threads)
        rows = EvaluationSample(self.dataset, execution)
        logits, packed = np.stack([one.logits for one in self.evaluations]), {}
        for index in chosen:
            model, scratch = (_single(self.members[index]) for _ in range(2))
            uses = row_uses(self.dataset, model.spec)
            room = (self.limit - FILE_OVERHEAD_BYTES) // len(chosen)
            found = best_form(model, scratch, uses, room, rows, has_check_bits=self.error_rate is not None)
            if found is None:
                return None
            packed[index] = found
            scratch.load_state_dict(unpack(model, found.tensors))
            logits[index] = evaluate(scratch, self.dataset, "validation", execution).logits
        labels, weights = self.evaluations[0].labels, self.evaluations[0].weights
        own = select_ensemble(
            labels,
            logits[list(chosen)],
            self.seed,
            row_weights=weights,
            tasks=self.dataset.features.tasks,
            select_by=self.select_by,
            most=self.most,
        )
        whole = own.among(chosen, len(self.members))
        return PackedEnsemble(selection=whole, logits=logits, packed={index: packed[index] for index in whole.chosen})

    @cached_property
    def _second(self) -> np.ndarray:
        """Return the half of the validation rows on which no ensemble weights were fitted."""
        main = self.evaluations[0].labels.reshape(len(self.evaluations[0].labels), -1)[:, 0]
        second = halves(main, self.seed)[1]
        return second if len(second) else np.arange(len(main))

    def _under_errors(self, found: PackedEnsemble) -> FaultResult | None:
        """Return the quality on the rows of `_second` under bit flips; None without an error rate."""
        if self.error_rate is None:
            return None
        execution, chosen = Execution(threads=self.threads), found.selection.chosen
        tensors = [found.packed[index].tensors for index in chosen]
        models = [_single(self.members[index]) for index in chosen]
        memory = Memory(combined_as(found.selection, models), tensors)
        return measure_under_faults(
            memory,
            MemoryErrors(rate=self.error_rate),
            EvaluationSample(self.dataset, execution, most_batches=JUDGED_BATCHES, among=self._second),
            EvaluationSample(self.dataset, execution, "train", batch_rows=CANARY_ROWS, most_batches=1),
            seed=self.seed,
            answers=ANSWERS[-1:],
        )

    def _quality(self, combined: np.ndarray, rows: np.ndarray | slice) -> Metrics:
        labels, weights = self.evaluations[0].labels, self.evaluations[0].weights
        tasks = self.dataset.features.tasks
        return compute_task_metrics(tasks, labels[rows], combined[rows], None if weights is None else weights[rows])


def _single(member: TrainedModel) -> Model:
    model = load_model(member.directory)
    assert not isinstance(model, Ensemble), f"{member.directory} holds an ensemble, expected a single model"
    return model


def row_uses(dataset: Dataset, spec: ModelSpec) -> list[np.ndarray]:
    """Return the number of lookups of each table row in one pass over the training part, int64 `[rows]` for each table.

    Args:
        dataset: Data set.
        spec: Architecture, which defines where ids share rows.

    Raises:
        DataError: An array is missing.
    """
    features = dataset.features
    counts = [np.zeros(shape.rows, dtype=np.int64) for shape in spec.tables(features)]
    single = [field.name for field in features.categorical if not field.multi_valued]
    for position, (field, table) in enumerate(zip(features.categorical, features.table_of, strict=True)):
        name = f"train.bag{position}.values.npy" if field.multi_valued else "train.categorical.npy"
        ids = read_array(dataset.directory / name)
        column = ids if field.multi_valued else ids[:, single.index(field.name)]
        rows = len(counts[table])
        for start in range(0, len(column), IDS_AT_ONCE):
            counts[table] += np.bincount(column[start : start + IDS_AT_ONCE] % rows, minlength=rows)
    return counts
