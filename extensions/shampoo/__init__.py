"""Distributed Shampoo, a second-order optimizer for the dense layers.

`blocks` cuts parameters into blocks and assigns them to processes, and `direction` is the algorithm for one block.
`optimizer` combines them into a `torch.optim.Optimizer`.
"""

from shunter.extensions.shampoo.blocks import merge_state_dicts
from shunter.extensions.shampoo.optimizer import Shampoo

__all__ = ["Shampoo", "merge_state_dicts"]
