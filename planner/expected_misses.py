"""Embedding tables in a file: how often a training is expected to read it, said with the decision."""

from engine.data.dataset import Dataset
from engine.memory import cached_rows
from models.graph import GraphSpec
from models.spec import ModelSpec
from planner.decide import Decision
from planner.memory.compare import ids_per_sample
from planner.memory.demand import demands
from planner.memory.hits import predict_hits

MIB = 2**20


def with_expected_misses(decision: Decision, dataset: Dataset, spec: ModelSpec | GraphSpec) -> Decision:
    """The decision with the misses that its cache is expected to have, as `shunter plan memory` predicts them.

    Args:
        decision: The decision.
        dataset: What is trained on.
        spec: The model that it was made for.

    Raises:
        DataError: An array of the data set is missing.
    """
    placement = decision.placement
    memory = placement.embedding_memory_bytes
    if memory is None or isinstance(spec, GraphSpec):
        return decision
    rows = cached_rows(spec, dataset.features, memory)
    if rows is None:
        return decision
    tables = demands(dataset, spec, ids_per_sample(dataset))
    hits = predict_hits(tables, placement.batch_size, float(rows * tables[0].row_bytes))
    fetched = float(hits.misses.sum()) * tables[0].row_bytes
    note = (
        f"Of the different rows of a batch of {placement.batch_size:,} samples, {hits.miss_rate:.1%} are expected to "
        f"be read from the file, {fetched / MIB:,.2g} MiB a step (estimated from the statistics of the data)."
    )
    update = {"tier_miss_rate": hits.miss_rate, "notes": (*decision.notes, note)}
    return decision.model_copy(update=update)
