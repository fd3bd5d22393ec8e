"""Distributed Shampoo, a second-order optimizer for the dense layers.

`blocks` cuts parameters into blocks, `direction` is the algorithm for one block, and `sharding` assigns the blocks to
processes. `optimizer` combines them into a `torch.optim.Optimizer`.
"""

from shunter.extensions.shampoo.optimizer import Shampoo
from shunter.extensions.shampoo.sharding import merge_state_dicts

__all__ = ["Shampoo", "merge_state_dicts"]
