"""Start of a training run from a registered model with another vocabulary of ids."""

from shunter.engine.checkpoint.warm_start import WarmStart
from shunter.engine.data.dataset import Dataset
from shunter.ingestion.encoding.encoder import Encoder
from shunter.ingestion.encoding.shared_rows import shared_rows
from shunter.tracking.registry.versions import ModelFiles


def warm_start_from(files: ModelFiles, member: int, dataset: Dataset) -> WarmStart:
    """Return the warm start from a model; table rows are matched by the value of their id, since ids may differ.

    Raises:
        DataError: An encoder cannot be read.
    """
    now, former = Encoder.load(dataset.directory / "encoder"), Encoder.load(files.encoder)
    return WarmStart(files.model, shared_rows(now, former), member)
