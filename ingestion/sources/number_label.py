"""Label of a source that is a number because of the requested loss."""

from dataclasses import replace

from shunter.errors import RequestError
from shunter.ingestion.batch import Source
from shunter.ingestion.fields import Label
from shunter.ingestion.schema import Schema
from shunter.ingestion.sources.parts import PartsSource
from shunter.ingestion.sources.tabular import TableSource
from shunter.label_losses import predicts_probability


def with_loss(source: Source, loss: str | None) -> Source:
    """Return a source whose label is read as a number, if the requested loss is for numbers.

    A threshold of the label, such as that of a built-in data set, is dropped.

    Args:
        source: Source with the label of its schema.
        loss: Requested loss; None leaves the label as the schema describes it.

    Raises:
        RequestError: The loss is for clicks but the label is a number, or the loss is for numbers but the log has
            several labels or holds clicks by its format.
    """
    if loss is None:
        return source
    label, is_for_clicks = source.schema.label, predicts_probability(loss)
    if is_for_clicks and label.loss is not None:
        raise RequestError(
            f"--loss {loss} is for click labels, but the label {label.column} is a number because of its "
            f"loss {label.loss} in the schema: leave one of them out."
        )
    if is_for_clicks:
        return source
    if source.schema.labels or label.positive:
        raise RequestError(f"--loss {loss} needs a single label that is a number: name its column under `label`.")
    if isinstance(source, TableSource):
        return replace(source, schema=numbered(source.schema, loss))
    if isinstance(source, PartsSource) and isinstance(source.training, TableSource):
        files = (source.training, *(one for _, one in source.others))
        training, *others = (replace(one, schema=numbered(one.schema, loss)) for one in files)
        parts = zip((part for part, _ in source.others), others, strict=True)
        return replace(source, training=training, others=tuple(parts))
    raise RequestError(
        f"--loss {loss} needs a label that is a number, but the format of {source.name} has click "
        "labels: give a loss for clicks."
    )


def numbered(schema: Schema, loss: str) -> Schema:
    """Return a schema whose label is a number with a loss."""
    label = Label(column=schema.label.column, name=schema.label.name, loss=loss)
    return schema.model_copy(update={"label": label})
