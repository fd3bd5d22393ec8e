"""DMT on several hosts, each of which stores the tables and the modules of its towers (`sptt`).

A tower processes samples of all processes, and the loss is a mean over all processes. The gradient of a tower is
therefore summed within its host only, without messages to other hosts, and divided by the number of all processes.
The gradient of the layers above the towers is averaged over all processes. Both gradients equal those of a single
process with the whole batch.
"""

from collections.abc import Callable, Sequence
from typing import Self, cast

import torch
from torch import Tensor, nn
from torch import distributed as dist

from shunter.engine.config import Hyperparameters
from shunter.errors import InfeasibleError
from shunter.extensions.distributed.training.hosts import HostModel, Hosts
from shunter.extensions.distributed.training.plan import Machine
from shunter.extensions.towers.dmt import DmtLayers, DmtSpec, split_evenly, towers_of
from shunter.extensions.towers.sptt import TowerEmbeddings, TowerLayout
from shunter.models.optimizers import divides_state
from shunter.models.recommender import Recommender
from shunter.models.registry import assemble_model
from shunter.models.spec import Features, ModelSpec

FLOAT_BYTES = 4


class HostRecommender(HostModel):
    """DMT whose towers are computed on their own hosts.

    Every process has the modules of all towers, but the modules of other hosts' towers are only updated by
    `gather_layers`.

    Args:
        model: Model with tables that are divided by tower.
        hosts: Processes, grouped by host.
        towers: Indices of the towers of each host.
    """

    spec: DmtSpec
    embeddings: TowerEmbeddings
    layers: DmtLayers

    def __init__(self, model: Recommender, hosts: Hosts, towers: Sequence[Sequence[int]]) -> None:
        super().__init__(model.spec, model.features, model.embeddings, model.layers)
        self._hosts, self._towers, self._own = hosts, towers, towers[hosts.host]
        fields = self.layers.fields
        self._counts = [sum(self.spec.vectors_of(len(fields[tower])) for tower in own) for own in towers]
        self._sizes = [len(fields[tower]) for tower in self._own]

    @classmethod
    def can_be_divided(
        cls, spec: ModelSpec, features: Features, hyperparameters: Hyperparameters, processes_per_host: int
    ) -> bool:
        """Return True for a DMT on several hosts with at least one tower per host and one table per field.

        All tables must have the same width and one row per id, and ids must have no weights. The result is False for an
        optimizer that shards its state over all processes, because each process would need all parameters.
        """
        hosts, rest = divmod(dist.get_world_size(), processes_per_host)
        if not isinstance(spec, DmtSpec) or spec.has_mixed_tables or features.is_weighted or hosts < 2 or rest:
            return False
        if divides_state(hyperparameters.dense_optimizer) or len(towers_of(spec, features)) < hosts:
            return False
        return all(field.table is None for field in features.categorical)

    @classmethod
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
        """Build a DMT on several hosts, with initial weights equal to those of a DMT on a single process.

        Raises:
            InfeasibleError: The tables of a process do not fit into its memory.
        """
        assert isinstance(spec, DmtSpec), "as `can_be_divided` says"
        hosts = Hosts(processes_per_host)
        fields = towers_of(spec, features)
        towers = split_evenly(range(len(fields)), hosts.count)
        rows = [field.rows for field in features.categorical]
        by_host = tuple(tuple(field for tower in own for field in fields[tower]) for own in towers)
        layout = TowerLayout.divide(by_host, processes_per_host, rows)
        for rank, own in enumerate(layout.owned):
            needed = sum(rows[field] for field in own) * (spec.embedding_dim + 1) * FLOAT_BYTES
            if needed > machine.memory_bytes:
                raise InfeasibleError(
                    f"The embedding tables of process {rank} take {needed:,} bytes, but it has only "
                    f"{machine.memory_bytes:,}: use more memory, more processes on each host, or other "
                    "towers."
                )
        rate, dim = hyperparameters.embedding_learning_rate, spec.embedding_dim
        embeddings = TowerEmbeddings(rows, dim, learning_rate=rate, device=device, hosts=hosts, layout=layout)
        embeddings.l2, embeddings.initial_bound = hyperparameters.embedding_l2, hyperparameters.embedding_initial_bound
        return cls(assemble_model(spec, features, embeddings, seed=seed, device=device), hosts, towers)

    def forward(self, dense: Tensor, values: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Score this process's samples; all processes call this at the same time with equally many samples."""
        assert weights is None, "where ids have weights, tables are divided by TorchRec"
        parts = self.embeddings.to_towers(values, offsets).split(self._sizes, dim=1)
        vectors = [self.layers.towers[tower](part) for tower, part in zip(self._own, parts, strict=True)]
        return self.layers.above(dense, self.embeddings.to_samples(torch.cat(vectors, dim=1), self._counts))

    def average_gradients(self) -> None:
        """Average the gradients so that they equal those of the whole batch."""
        processes = len(self._hosts.everyone.ranks)
        own = [parameter for tower in self._own for parameter in self.layers.towers[tower].parameters()]
        _mean_gradient(own, self._hosts.local_members.sum, processes)
        _mean_gradient(list(self.layers.above.parameters()), self._hosts.everyone.sum, processes)

    @torch.no_grad()
    def gather_layers(self, optimizer: torch.optim.Optimizer | None = None) -> None:
        """Copy the weights and the optimizer state of each tower from its host to all processes."""
        for host, towers in enumerate(self._towers):
            parameters = [parameter for tower in towers for parameter in self.layers.towers[tower].parameters()]
            states = [optimizer.state.get(parameter, {}) if optimizer else {} for parameter in parameters]
            message = [
                [
                    (parameter.cpu(), {name: _on(value, "cpu") for name, value in state.items()})
                    for parameter, state in zip(parameters, states, strict=True)
                ]
            ]
            dist.broadcast_object_list(message, src=host * self._hosts.processes_per_host)
            if host == self._hosts.host:
                continue
            for parameter, (weight, state) in zip(parameters, message[0], strict=True):
                parameter.copy_(weight)
                if optimizer and state:
                    optimizer.state[parameter] = {name: _on(value, parameter.device) for name, value in state.items()}


def _mean_gradient(parameters: Sequence[nn.Parameter], add_up: Callable[[Tensor], None], processes: int) -> None:
    """Sum the gradients by `add_up` in one flat array, and divide them by the number of all processes."""
    gradients = [cast("Tensor", parameter.grad) for parameter in parameters]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    add_up(flat)
    flat /= processes
    for gradient, mean in zip(gradients, flat.split([gradient.numel() for gradient in gradients]), strict=True):
        gradient.copy_(mean.view_as(gradient))


def _on(value: object, device: torch.device | str) -> object:
    return value.to(device) if isinstance(value, Tensor) else value
