"""Flow that compresses a registered model: try compressions, measure them, and register the best one."""

from typing import Annotated

from prefect import flow
from prefect.runtime import flow_run

from shunter.extensions.compression.compress_step import (
    Compressed,
    check_scorer,
    log_compressions,
    register_compressed,
    try_compressions,
)
from shunter.extensions.compression.compressed_versions import data_of_version, version_of_title
from shunter.extensions.compression.compression_card import COLUMNS, comparison
from shunter.extensions.compression.compression_requests import CompressRequest
from shunter.flows.scoring import chosen_model
from shunter.requests import shown
from shunter.settings import Settings
from shunter.tasks.notify import notify
from shunter.tasks.results import markdown_table, show_result
from shunter.tasks.run_names import named_by
from shunter.tracking.registry.model_keys import check_model_key
from shunter.tracking.registry.models import RegisteredModel
from shunter.tracking.registry.named import open_model
from shunter.tracking.runs import closing, start_run


@flow(name="compress", flow_run_name=named_by("model"), on_failure=[notify], on_crashed=[notify])
def compress(
    request: Annotated[CompressRequest, shown(CompressRequest())] = CompressRequest(),  # noqa: B008 - frozen
) -> tuple[Compressed, RegisteredModel | None]:
    """Try every compression on a registered model, and register the fastest result within the limits.

    Args:
        request: Model, and the limits on its compressed version.

    Returns:
        Results of the compressions, and the new version; None if the model is not compressed.
    """
    check_model_key()
    with open_model(chosen_model(request.model)) as named:
        version = version_of_title(named.title)
        dataset = data_of_version(version, Settings().cache_directory)
        opened = check_scorer(named.title, named.scorer(), dataset)
        run_id = start_run(f"{named.title} compress", "compress", flow_run_id=flow_run.get_id())
        with closing(run_id):
            found = try_compressions(opened, request)
            log_compressions(run_id, found)
            winner = found.card.winner
            made = None if winner is None else register_compressed(run_id, found, winner, promote=request.promote)
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in comparison(found.card.records)]
    show_result("compress", found.card.sentence, markdown_table(rows), run_id=run_id)
    return found, made
