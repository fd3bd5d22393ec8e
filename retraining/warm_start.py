"""Starting a training from a registered model, whose ids may stand for other values."""

from engine.checkpoint.warm_start import WarmStart
from engine.data.dataset import Dataset
from ingestion.encoding.encoder import Encoder
from ingestion.encoding.shared_rows import shared_rows
from tracking.registry.versions import ModelFiles


def warm_start_from(files: ModelFiles, member: int, dataset: Dataset) -> WarmStart:
    """Start from a model whose ids may stand for other values.

    Raises:
        DataError: An encoder cannot be read.
    """
    now, former = Encoder.load(dataset.directory / "encoder"), Encoder.load(files.encoder)
    return WarmStart(files.model, shared_rows(now, former), member)
