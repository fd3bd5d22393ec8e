"""Models with layers divided over hosts, which average gradients and gather weights by their own methods."""

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
        """Return True if the processes of torch's default group can train a divided model."""

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
        """Average the gradients over the whole batch."""

    @abstractmethod
    def gather_layers(self, optimizer: torch.optim.Optimizer | None = None) -> None:
        """Copy the weights of each layer, and their optimizer state, from its host to all processes."""
