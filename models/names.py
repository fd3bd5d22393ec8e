"""Which model families a request can name, and what `auto` stands for."""

from shunter.errors import RequestError, UnknownNameError
from shunter.model_families import AUTO, MODEL_FAMILIES, model_entry, model_names
from shunter.models.counting import count_model
from shunter.models.registry import model_spec
from shunter.models.spec import Features, nearest


def check_model(name: str) -> None:
    """Refuse a model that is not known, before anything is read or measured.

    Raises:
        RequestError: The name is neither a family nor `auto`; the message names the nearest one.
        MissingExtensionError: The family belongs to an extension that is not installed.
    """
    try:
        if name != AUTO:
            model_entry(name)
    except UnknownNameError:
        raise RequestError(f"Unknown model family {name!r}: {nearest(name, model_names())}.") from None


def auto_families(features: Features | None = None, *, in_file: bool = False) -> tuple[str, ...]:
    """Return the families that tuning chooses from.

    Args:
        features: Features of the data: where it has a history, a family that reads it id by id is one of them. None
            leaves the families that take any data.
        in_file: Whether the embedding tables lie in a file, which such a family cannot read.
    """
    others = MODEL_FAMILIES.names_with(is_in_auto=True, reads_positions=True)
    takes_history = features is not None and bool(features.histories) and not in_file
    any_data = MODEL_FAMILIES.names_with(is_in_auto=True, reads_positions=False)
    return (*any_data, *(others if takes_history else ()))


def representative(name: str, features: Features) -> str:
    """The family that a placement is chosen for: for `auto` the one that asks most arithmetic of these features.

    Which family wins is known after tuning only. The dearest keeps the limits of time, energy, cost and memory for all
    that take any log. One that reads histories may ask more, but cannot tell whether tables that are larger than the
    memory may lie in a file or with several processes.
    """
    if name != AUTO:
        return name
    return max(auto_families(), key=lambda family: count_model(model_spec(family), features).matmul_flops_per_sample)
