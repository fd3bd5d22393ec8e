"""Members that share one set of embedding tables: more layers, learned over the tables of a finished model.

No way of the product: it is measured whether it would pay. The tables are those of the best single and learn nothing
more, the layers of each further member are drawn from another seed and learned by the same recipe.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from benchmarks.ensembles.trainings import Trainings
from shunter.engine.checkpoint.warm_start import TransferredWeights, WarmStart
from shunter.engine.job import TrainingJob
from shunter.models.registry import Model

if TYPE_CHECKING:
    from shunter.engine.trained_model import TrainedModel

FIRST_SEED = 1_000  # of the layers; no training of the product here has it


@dataclass(frozen=True)
class TablesOf(WarmStart):
    """The tables of a finished model, which stay as they are, under layers that are drawn anew."""

    @torch.no_grad()
    def apply(self, model: Model) -> TransferredWeights:
        """Take the tables over, in place."""
        former = self.load()
        model.embeddings.weight.copy_(former.embeddings.weight)
        model.embeddings.freeze_tables(set(range(len(model.embeddings.tables))))
        return TransferredWeights(rows=sum(len(table) for table in former.embeddings.tables), layers=False)


def shared_bytes(trainings: Trainings, owner: "TrainedModel", members: int) -> int:
    """Bytes of so many members over the tables of one, in 8 bits a number: the tables once, layers of each."""
    from shunter.engine.checkpoint.storage import load_model
    from shunter.engine.ensemble.result import FILE_OVERHEAD_BYTES
    from shunter.extensions.compression.memory_limit import row_uses
    from shunter.extensions.compression.packing import TABLES, Form, pack, stored_bytes
    from shunter.models.ensemble import Ensemble

    model = load_model(owner.directory)
    assert not isinstance(model, Ensemble), "a member is a single model"
    packed = pack(model, Form(), row_uses(trainings.dataset, owner.spec), 1 << 40)
    assert packed is not None, "there is room for all of it"
    tables = {name: tensor for name, tensor in packed.items() if name.startswith(TABLES)}
    layers = {name: tensor for name, tensor in packed.items() if name not in tables}
    return FILE_OVERHEAD_BYTES + stored_bytes(tables) + members * stored_bytes(layers)


def sharing_members(
    trainings: Trainings, owner: "TrainedModel", work: Path, *, seed: int, count: int
) -> "Sequence[TrainedModel]":
    """Train so many further members over the tables of one.

    Args:
        trainings: Data and placement.
        owner: Whose tables they are.
        work: Folder of the trainings.
        seed: Seed of the first.
        count: How many.
    """
    from shunter.engine.execution import execution_of
    from shunter.tasks.train import train_model

    # A decay would go on with tables that learn nothing.
    hyperparameters = replace(owner.hyperparameters, embedding_l2=0.0)
    found = []
    for number in range(count):
        job = TrainingJob(
            trainings.dataset,
            owner.spec,
            hyperparameters,
            execution_of(trainings.placement),
            replace(owner.schedule, seed=FIRST_SEED + count * seed + number),
            TablesOf(owner.directory, {}),
        )
        name = f"sharing-{number}"
        found.append(train_model(job, trainings.placement, work / name, name=name, is_shown=False))
    return found
