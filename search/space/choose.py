"""Choice of the search space for a request."""

from pathlib import Path

from shunter.engine.data.dataset import Dataset
from shunter.engine.overrides import read_overrides
from shunter.errors import RequestError
from shunter.hardware.types import Placement
from shunter.model_families import MODEL_FAMILIES
from shunter.requests import SEARCH_SPACES, SearchSpaceName, TrainRequest
from shunter.search.protocol import Space
from shunter.search.space.learning import usual_rates, weights_of_tasks
from shunter.search.space.settings import SearchSpace
from shunter.tracking.runs import open_run


def space_for(
    dataset: Dataset, request: TrainRequest, placement: Placement, directory: Path, parent_run_id: str
) -> Space:
    """Return the search space of a request, for the size of the data.

    Args:
        dataset: The data.
        request: Request with the name of the space and the model family.
        placement: Placement of the trials; if the family has towers, their field partitions are learned there.
        directory: Folder of the search.
        parent_run_id: MLflow run of the search.

    Raises:
        RequestError: The family or a task with a weight is unknown, or the space is empty.
        MissingExtensionError: The space belongs to an extension that is not installed.
    """
    weights = weights_of_tasks(request.training.task_weights, dataset.features.tasks)
    overrides = read_overrides(request.model, request.architecture.set)
    if request.search.space == SearchSpaceName.ARCHITECTURE:
        space, rates = SEARCH_SPACES.load(SearchSpaceName.ARCHITECTURE), usual_rates(placement.batch_size)
        return space.for_dataset(dataset, task_weights=weights, overrides=overrides, hyperparameters=rates)
    partitions_of = MODEL_FAMILIES.load_part(request.model, "field_partitions")
    partitions = partitions_of(dataset, request, placement, directory, open_run(parent_run_id)) if partitions_of else {}
    is_wide = request.search.space == SearchSpaceName.WIDE
    in_file = placement.embedding_memory_bytes is not None
    space = SearchSpace.for_dataset(dataset, request.model, weights, overrides, is_wide=is_wide, in_file=in_file)
    space = space.at_batch_size(placement.batch_size)
    return space.model_copy(update={"tower_partitions": partitions})


def check_not_empty(space: Space) -> None:
    """Raise if a factor of the space has no values, or if the space has no factors and the user fixed none.

    Raises:
        RequestError: The space is empty.
    """
    factors = space.factors()
    for name, values in factors.items():
        if not values:
            raise RequestError(f"The search space is empty, since {name} has no values: give at least one.")
    if not factors and not (isinstance(space, SearchSpace) and space.fixed_architecture):
        raise RequestError("The search space is empty, since it has no factors: give at least one.")
