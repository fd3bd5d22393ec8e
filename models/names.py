"""Which model families a request can name, and what `auto` stands for."""

from models.counting import count_model
from models.graph import GRAPH_FAMILIES
from models.registry import FAMILIES
from models.spec import Features, ModelSpec, nearest
from shunter.errors import RequestError

AUTO = "auto"
# What tuning chooses from: the families that take any click log, and give a probability.
AUTO_FAMILIES = ("dlrm", "dnn", "deepfm", "dcnv2", "finalmlp", "dhen")


def check_model(name: str) -> None:
    """Refuse a model that is not known, before anything is read or measured.

    Raises:
        RequestError: the name is neither a family nor `auto`; the message names the nearest one.
    """
    known = {AUTO, *FAMILIES, *GRAPH_FAMILIES}
    if name not in known:
        raise RequestError(f"Unknown model family {name!r}: {nearest(name, known)}.")


def representative(name: str, features: Features) -> str:
    """The family that a placement is chosen for: for `auto` the one that asks most arithmetic of these features.

    Which family wins is known after tuning only. The dearest keeps the limits of time, energy, cost and memory for all.
    """
    if name != AUTO:
        return name
    return max(
        AUTO_FAMILIES, key=lambda family: count_model(ModelSpec(family=family), features).matmul_flops_per_sample
    )
