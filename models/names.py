"""Which model families a request can name, and what `auto` stands for."""

from shunter.errors import RequestError
from shunter.models.counting import count_model
from shunter.models.graph.registry import GRAPH_FAMILIES
from shunter.models.registry import FAMILIES, model_spec
from shunter.models.spec import Features, nearest

AUTO = "auto"
# What tuning chooses from whatever the log.
AUTO_FAMILIES = tuple(family.name for family in FAMILIES.values() if family.is_in_auto and not family.reads_positions)
# And where the log has a history as well.
AUTO_HISTORY_FAMILIES = tuple(
    family.name for family in FAMILIES.values() if family.is_in_auto and family.reads_positions
)


def check_model(name: str) -> None:
    """Refuse a model that is not known, before anything is read or measured.

    Raises:
        RequestError: The name is neither a family nor `auto`; the message names the nearest one.
    """
    known = {AUTO, *FAMILIES, *GRAPH_FAMILIES}
    if name not in known:
        raise RequestError(f"Unknown model family {name!r}: {nearest(name, known)}.")


def auto_families(features: Features, *, in_file: bool = False) -> tuple[str, ...]:
    """What tuning chooses from on this data.

    Args:
        features: Features of the data: where it has a history, a family that reads it id by id is one of them.
        in_file: Whether the embedding tables lie in a file, which such a family cannot read.
    """
    return (*AUTO_FAMILIES, *(AUTO_HISTORY_FAMILIES if features.histories and not in_file else ()))


def representative(name: str, features: Features) -> str:
    """The family that a placement is chosen for: for `auto` the one that asks most arithmetic of these features.

    Which family wins is known after tuning only. The dearest keeps the limits of time, energy, cost and memory for all
    that take any log. One that reads histories may ask more, but cannot tell whether tables that are larger than the
    memory may lie in a file or with several processes.
    """
    if name != AUTO:
        return name
    return max(AUTO_FAMILIES, key=lambda family: count_model(model_spec(family), features).matmul_flops_per_sample)
