"""What the search will train, beside the default architecture that a placement is chosen for."""

from shunter.engine.data.dataset import Dataset
from shunter.engine.fixed import read_fixed
from shunter.hardware.types import Workload
from shunter.models.graph import GRAPH_FAMILIES
from shunter.planner.describe import describe
from shunter.requests import JobRequest, NightlyRequest, SearchSpaceName, TrainRequest
from shunter.search.space.drawn import drawn_specs
from shunter.search.space.settings import SearchSpace


def searched_workloads(dataset: Dataset, request: JobRequest) -> list[Workload]:
    """The demand of architectures that stand for those of the search; none where the default stands for all.

    That is so of graph models and nights, of a search that its own time or energy ends, whatever its points take, and
    of one among architectures that is cut by what they cost.

    Args:
        dataset: Data to train on.
        request: What was asked for.
    """
    trials = request.search.most_trials
    is_cut = isinstance(request, TrainRequest) and request.search.space == SearchSpaceName.ARCHITECTURE
    if trials is None or is_cut or request.model in GRAPH_FAMILIES or isinstance(request, NightlyRequest):
        return []
    fixed = read_fixed(request.model, request.architecture.set)
    space = SearchSpace.for_dataset(dataset, request.model, fixed=fixed)
    return [describe(dataset, spec) for spec in drawn_specs(space, trials, request.seed)]
