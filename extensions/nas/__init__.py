"""Neural architecture search: which layers, widths, interaction and table sizes a DLRM has.

`architecture_space` is what is searched. `dnas` draws from a super-net: `supernet` is the network,
`architecture_search` trains it, `supernet_search` gives it a share of the search's budget, and `operator_costs`
measures what its operators cost.
`reinforce` is the controller of the method `rl`, which searches any space.
"""
