"""Neural architecture search: the layers, widths, interaction and table sizes of a DLRM.

`architecture_space` is the search space. `dnas` samples architectures from a super-net: `supernet` is the network with
its costs, `architecture_search` trains it, and `supernet_search` gives it a share of the search's budget. `reinforce`
is the controller of the method `rl`, which searches any space.
"""
