"""Demand of the model with towers that replaces a flat model, counted from the model itself."""

from shunter.engine.data.dataset import Dataset
from shunter.engine.profiling.workload import workload_of
from shunter.hardware.types import Workload
from shunter.model_families import MODEL_FAMILIES
from shunter.models.counting import count_model
from shunter.models.registry import model_spec
from shunter.models.spec import Features, ModelSpec
from shunter.planner.describe import describe

WITH_TOWERS = ("dlrm", "dcnv2")  # families that DMT (arXiv 2403.00877) divides into towers
WIDTH_STEP = 4  # FBGEMM's rows are multiples of four floats


def tower_spec(spec: ModelSpec, fields: int, towers: int, compression: float) -> ModelSpec:
    """Return the spec with towers; each compresses its fields' vectors by the factor `compression`.

    Args:
        spec: A flat model.
        fields: Its categorical fields.
        towers: How many towers, at most one for each field.
        compression: By how much each compresses.
    """
    of_a_tower = fields / towers
    vectors = max(1, round(of_a_tower / compression))
    width = of_a_tower * spec.embedding_dim / (compression * vectors)
    return model_spec(
        "dmt",
        embedding_dim=spec.embedding_dim,
        bottom_widths=spec.bottom_widths,
        top_widths=spec.top_widths,
        towers=towers,
        tower_kind="dcn" if spec.family == "dcnv2" else "dlrm",
        tower_vectors=vectors,
        tower_dim=max(WIDTH_STEP, WIDTH_STEP * round(width / WIDTH_STEP)),
    )


def tower_workload(dataset: Dataset, spec: ModelSpec, towers: int, compression: float) -> Workload | None:
    """Return the workload of a model with this number of towers; None if such a model is not available."""
    if "dmt" not in MODEL_FAMILIES.names:
        return None
    fields = len(dataset.features.categorical)
    if spec.family not in WITH_TOWERS or spec.has_mixed_tables or min(towers, fields) < 2:
        return None
    whole, alone = (
        describe(dataset, tower_spec(spec, fields, count, compression)) for count in (min(towers, fields), 1)
    )
    return with_one_tower(whole, alone)


def counted_towers(spec: ModelSpec, features: Features, towers: int, compression: float, samples: int) -> Workload:
    """Return the workload of a model with towers, from its fields without data."""
    fields = len(features.categorical)
    whole, alone = (
        counted_workload(tower_spec(spec, fields, count, compression), features, samples)
        for count in (min(towers, fields), 1)
    )
    return with_one_tower(whole, alone)


def counted_workload(spec: ModelSpec, features: Features, train_samples: int) -> Workload:
    """Return the workload of a model, from its fields without data."""
    return workload_of(count_model(spec, features), train_samples=train_samples)


def with_one_tower(whole: Workload, alone: Workload) -> Workload:
    """Return the work of all towers as that of one: a device computes its host's tower for the samples of all peers."""
    dense = {
        precision: one.model_copy(update={"operators_per_step": alone.dense[precision].operators_per_step})
        for precision, one in whole.dense.items()
    }
    return whole.model_copy(update={"dense": dense, "operators_per_step": alone.operators_per_step})
