"""Flow that measures the quality of a registered model under memory faults."""

from prefect import flow
from prefect.runtime import flow_run

from shunter.errors import RequestError
from shunter.extensions.compression.compressed_versions import data_of_version, version_of_title
from shunter.extensions.compression.robustness.memory import Memory
from shunter.extensions.compression.robustness.robustness_card import RobustnessCard
from shunter.extensions.compression.robustness.robustness_request import RobustnessRequest
from shunter.extensions.compression.robustness.robustness_step import log_robustness, measure_robustness
from shunter.settings import Settings
from shunter.tasks.run_names import named_by
from shunter.tracking.registry.named import open_model
from shunter.tracking.registry.ranking_serving import RankingScorer
from shunter.tracking.registry.versions import only_model
from shunter.tracking.runs import closing, start_run


@flow(name="robustness", flow_run_name=named_by("model"))
def robustness(request: RobustnessRequest = RobustnessRequest()) -> RobustnessCard:  # noqa: B008
    """Inject memory faults into a registered model, and measure its quality with and without a detector.

    Args:
        request: Model and faults.
    """
    with open_model(request.model or only_model()) as named:
        version = version_of_title(named.title)
        dataset = data_of_version(version, Settings().cache_directory)
        if isinstance(named.scorer(), RankingScorer):
            raise RequestError(f"{named.title} is a ranking model, but faults can be injected only into click models.")
        run_id = start_run(f"{named.title} robustness", "robustness", flow_run_id=flow_run.get_id())
        with closing(run_id):
            card = measure_robustness(named.title, Memory.read(named.weights), dataset, request)
            log_robustness(run_id, version, dataset, card)
    return card
