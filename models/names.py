"""Names of model families that a request may use, and the families that `auto` stands for."""

from shunter.errors import RequestError, UnknownNameError
from shunter.model_families import AUTO, MODEL_FAMILIES, model_entry, model_names
from shunter.models.counting import count_model
from shunter.models.registry import model_spec
from shunter.models.spec import Features, nearest


def check_model(name: str) -> None:
    """Raise if a model is unknown, before any data is read or measured.

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
        features: Features of the data; if they include a history, families that read it id by id are added. None
            leaves only the families that accept any data.
        in_file: Whether the embedding tables are in a file, which families for histories cannot read.
    """
    others = MODEL_FAMILIES.names_with(is_in_auto=True, reads_positions=True)
    takes_history = features is not None and bool(features.histories) and not in_file
    any_data = MODEL_FAMILIES.names_with(is_in_auto=True, reads_positions=False)
    return (*any_data, *(others if takes_history else ()))


def representative(name: str, features: Features) -> str:
    """Return the family for which a placement is chosen: for `auto` the one with the most FLOPs on these features.

    The best family is only known after tuning. A placement for the most expensive family keeps the limits of time,
    energy, cost and memory for all families that accept any log. Families that read histories id by id may need more
    FLOPs, but are not considered: their tables cannot be in a file.
    """
    if name != AUTO:
        return name
    return max(auto_families(), key=lambda family: count_model(model_spec(family), features).matmul_flops_per_sample)
