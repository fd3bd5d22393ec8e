"""Policy file, and the request to train one: safetensors for the networks, JSON for the rest; loading runs no code.

The file describes the training data and the cluster of the policy, and contains a digest of its whole content.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field, ValidationError

from shunter.checked_json import parse_json
from shunter.errors import DataError, RequestError, ShunterError
from shunter.extensions.fleet.board import Policy
from shunter.extensions.fleet.cluster import Cluster
from shunter.extensions.fleet.files import check_fleet
from shunter.extensions.fleet.learned.networks import STRATEGIES, Voters, Weights
from shunter.extensions.fleet.learned.objectives import Objective, check_objective
from shunter.extensions.fleet.learned.planner import AGENTS
from shunter.extensions.fleet.learned.policy import NAME, Learned
from shunter.extensions.fleet.requests import FleetLearnRequest
from shunter.files import open_regular, replace_file
from shunter.frozen import Frozen
from shunter.ingestion.sources.guard import check_text
from shunter.settings import Settings

if TYPE_CHECKING:
    from shunter.tasks.doctor import Compared

KEY, DIGEST = "shunter.policy", "shunter.digest"
LAYOUT = 1  # version of features and networks; increased when they change
MOST_BYTES = 64 * 2**20
AGAIN = "train it again with `shunter fleet learn`"


class PolicyCard(Frozen):
    """Description of a learned policy.

    Attributes:
        layout: Version of the policy's features and networks.
        objective: Objective that the policy was trained for.
        cluster: Digest of the cluster that the policy was trained on.
        trained_on: Names of the job file and the cluster file.
        trained_jobs: Number of training jobs.
        steps: Number of simulated choices in training.
        seed: Seed of the training.
        members: Number of snapshots in the ensemble.
        strategy: Voting strategy of the ensemble.
        ratio: Objective of the policy relative to that of the best other policy in the comparison; less than 1 is
            better.
        is_unseen: True if the comparison used jobs outside the training set; else the same jobs in another order.
        best_other: Name of the best other policy.
        follows: Name of the policy that decides instead of the networks, because it was better on the validation
            traces; None if the networks decide.
        validation_ratio: Objective of the networks relative to that of the best teacher on the validation traces.
    """

    layout: int = LAYOUT
    objective: Objective
    cluster: str
    trained_on: str
    trained_jobs: int
    steps: int
    seed: int
    members: int = Field(ge=1, le=64)
    strategy: str
    ratio: float | None = None
    is_unseen: bool = True
    best_other: str | None = None
    follows: str | None = Field(default=None, exclude_if=lambda name: name is None)
    validation_ratio: float | None = Field(default=None, exclude_if=lambda ratio: ratio is None)

    def description(self) -> str:
        """Return one sentence on the training data and the result of the comparison."""
        told = (
            f"trained for the objective {self.objective} on {self.trained_jobs} jobs of {self.trained_on} with "
            f"{self.steps:,} simulated decisions; it combines {self.members} snapshots of one training run "
            f"({self.strategy})"
        )
        if self.follows is not None and self.validation_ratio is not None:
            lost = f"{self.validation_ratio:.3f} times its {self.objective}"
            told = f"{told}; on validation it lost to {self.follows} ({lost}), which decides in its place"
        if self.ratio is None:
            return told
        verdict = "better than" if self.ratio < 1 else "no better than"
        jobs = "jobs that it has not seen" if self.is_unseen else "the same jobs in another order"
        share = f"{self.ratio:.3f} times the {self.objective} of {self.best_other}"
        return f"{told}; on {jobs} it is {verdict} {self.best_other}: {share}"


def shape_of(cluster: Cluster) -> str:
    """Return a digest of a cluster's machines, accelerator types and power limit, on which a policy depends."""
    machines = sorted((machine.accelerator, machine.count) for machine in cluster.machines)
    kinds = {name: cluster.type_of(name).model_dump(mode="json") for name in sorted(cluster.types)}
    text = json.dumps([machines, kinds, cluster.power_limit_watts], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def save_policy(path: Path, card: PolicyCard, members: list[Weights]) -> None:
    """Write a policy file, atomically replacing an existing one.

    Raises:
        RequestError: The file cannot be written.
    """
    from safetensors.numpy import save

    tensors = {f"{i}.{name}": value for i, member in enumerate(members) for name, value in sorted(member.items())}
    text = card.model_dump_json()
    payload = save(tensors, metadata={KEY: text, DIGEST: _digest(text, tensors)})
    try:
        replace_file(path, payload)
    except OSError as error:
        raise RequestError(f"The policy cannot be written to {path} ({error.strerror}): name another file.") from error


def load_policy(path: Path) -> tuple[PolicyCard, list[Weights]]:
    """Read a policy file.

    Raises:
        RequestError: There is no such file.
        DataError: The file is not a policy, or was changed after it was written.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        with open_regular(path) as file:
            payload = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise RequestError(
            f"The learned policy {path} cannot be read ({error.strerror}): give a file of `shunter fleet learn`."
        ) from error
    broken = DataError(f"{path} is not a learned policy, or was changed since it was written: {AGAIN}.")
    if len(payload) > MOST_BYTES:
        raise broken
    try:
        tensors = load(payload)
        header = parse_json(payload[8 : 8 + int.from_bytes(payload[:8], "little")]).get("__metadata__", {})
        card = PolicyCard.model_validate_json(header[KEY])
    except (SafetensorError, ValidationError, KeyError, ValueError) as error:
        raise broken from error
    if header.get(DIGEST) != _digest(header[KEY], tensors):
        raise broken
    if card.layout != LAYOUT or card.strategy not in STRATEGIES:
        raise DataError(f"The learned policy {path} was written by another version of Shunter: {AGAIN}.")
    members: list[Weights] = [{} for _ in range(card.members)]
    for name, value in tensors.items():
        number, _, rest = name.partition(".")
        if not number.isdigit() or int(number) >= card.members:
            raise broken
        members[int(number)][rest] = value
    for member in members:
        for agent, features in AGENTS.items():
            weight = member.get(f"{agent}.w1")
            if weight is None or weight.ndim != 2 or weight.shape[0] != features:
                raise broken
    return card, members


def check_policies(folder: Path) -> "Iterator[Compared]":
    """Yield every policy of a folder, with its error if it cannot be loaded, for `shunter doctor`."""
    from shunter.tasks.doctor import Compared

    for path in sorted(folder.glob("*.safetensors")):
        try:
            load_policy(path)
        except ShunterError as error:
            yield Compared(path, fault=str(error))
        else:
            yield Compared(path)


def make_learned(path: Path, make_policy: Callable[[str], Policy]) -> Learned:
    """Return the learned policy of a file; the policy rejects clusters of another shape.

    Args:
        path: The file.
        make_policy: Function that returns a policy by name, to replace networks that were worse on validation.

    Raises:
        ShunterError: The file cannot be read, is not a policy, or was changed.
    """
    card, members = load_policy(path)

    def check(cluster: Cluster) -> None:
        if shape_of(cluster) != card.cluster:
            raise RequestError(
                f"The learned policy {path} was trained on a cluster of another shape ({card.trained_on}): "
                "train a policy for this cluster with `shunter fleet learn`."
            )

    found = Learned(
        Voters(members, card.strategy),
        card.objective,
        check,
        told=card.description(),
        follows=None if card.follows is None else make_policy(card.follows),
    )
    if path != policy_file(NAME):
        found.name = f"{NAME}:{path.stem}"
    return found


def policy_file(name: str) -> Path:
    """Return the path of the policy `learned`, `learned:NAME` or `learned:FILE`; NAME is a file in Shunter's home.

    Raises:
        RequestError: The file is outside the folders that a request may read.
    """
    _, _, file = name.partition(":")
    if "." not in file and "/" not in file:
        return Settings().home / "fleet" / f"{file or NAME}.safetensors"
    check_text(file)
    return Path(file)


def policy_path(request: FleetLearnRequest) -> Path:
    """Return the path of the policy file that a training writes."""
    return policy_file(f"{NAME}:{request.policy}")


def check_learning(request: FleetLearnRequest) -> None:
    """Raise if a request to train a policy is invalid.

    Raises:
        ShunterError: A file cannot be read, or lacks information that the objective needs.
    """
    _, cluster = check_fleet(request)
    check_objective(request.objective, cluster)
    if request.start_from is not None:
        load_policy(policy_file(f"{NAME}:{request.start_from}"))


def _digest(text: str, tensors: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        value: np.ndarray[Any, Any] = np.ascontiguousarray(tensors[name])
        digest.update(f"{name} {value.dtype.str} {value.shape}".encode())
        digest.update(value.tobytes())
    return digest.hexdigest()
