"""Flow that compresses a registered model: try compressions, measure them, and register the best one."""

from prefect import flow
from prefect.runtime import flow_run

from shunter.extensions.compression.compress_request import CompressRequest
from shunter.extensions.compression.compress_step import (
    Compressed,
    check_scorer,
    log_compressions,
    register_compressed,
    try_compressions,
)
from shunter.extensions.compression.compressed_versions import data_of_version, version_of_title
from shunter.settings import Settings
from shunter.tracking.registry.model_keys import check_model_key
from shunter.tracking.registry.models import RegisteredModel
from shunter.tracking.registry.named import open_model
from shunter.tracking.registry.versions import only_model
from shunter.tracking.runs import closing, start_run


@flow(name="compress", flow_run_name="compress-{request.model}")
def compress(request: CompressRequest = CompressRequest()) -> tuple[Compressed, RegisteredModel | None]:  # noqa: B008
    """Try every compression on a registered model, and register the fastest result within the limits.

    Args:
        request: Model, and the limits on its compressed version.

    Returns:
        Results of the compressions, and the new version; None if the model is not compressed.
    """
    check_model_key()
    with open_model(request.model or only_model()) as named:
        version = version_of_title(named.title)
        dataset = data_of_version(version, Settings().cache_directory)
        opened = check_scorer(named.title, named.scorer(), dataset)
        run_id = start_run(f"{named.title} compress", "compress", flow_run_id=flow_run.get_id())
        with closing(run_id):
            found = try_compressions(opened, request)
            log_compressions(run_id, found)
            winner = found.card.winner
            made = None if winner is None else register_compressed(run_id, found, winner, promote=request.promote)
    return found, made
