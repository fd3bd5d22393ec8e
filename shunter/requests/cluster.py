"""Request group of a cluster, which serves a request instead of this machine."""

from pydantic import Field, field_validator

from shunter.requests.groups import Group
from shunter.secrets import check_names_no_user


class ClusterRequest(Group, frozen=True, title="Advanced: cluster"):
    """Nodes that serve the request instead of this machine."""

    cluster: str | None = Field(
        default=None,
        min_length=1,
        description="Ray cluster to use instead of this machine: host:port, ray://host:port or auto.",
    )
    cluster_resource: str | None = Field(
        default=None,
        min_length=1,
        description="Use only nodes of --cluster started with this resource (`ray start --resources`).",
    )

    _cluster_names_no_user = field_validator("cluster")(check_names_no_user)
