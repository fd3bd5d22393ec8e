"""Models whose layers are divided over hosts, so that their gradients and weights meet in a way of their own."""

from abc import abstractmethod
from typing import Self

import torch

from shunter.engine.config import Hyperparameters
from shunter.extensions.distributed.training.plan import Machine
from shunter.models.recommender import Recommender
from shunter.models.spec import Features, ModelSpec


class HostModel(Recommender):
    """Recommender whose layers are divided among hosts; the capability `host_model` of a family names its class."""

    @classmethod
    @abstractmethod
    def can_be_divided(
        cls, spec: ModelSpec, features: Features, hyperparameters: Hyperparameters, processes_per_host: int
    ) -> bool:
        """Return True if the processes of torch's default group can train a model so."""

    @classmethod
    @abstractmethod
    def build(
        cls,
        spec: ModelSpec,
        features: Features,
        hyperparameters: Hyperparameters,
        device: torch.device,
        *,
        seed: int,
        processes_per_host: int,
        machine: Machine,
    ) -> Self:
        """Build the model with the initial weights of a single process; see `can_be_divided`.

        Raises:
            InfeasibleError: The tables of a process do not fit into its memory.
        """

    @abstractmethod
    def average_gradients(self) -> None:
        """Make the gradients those of the whole batch."""

    @abstractmethod
    def gather_layers(self, optimizer: torch.optim.Optimizer | None = None) -> None:
        """Bring the weights of each layer from its host to all processes, and what an optimizer keeps of them."""
