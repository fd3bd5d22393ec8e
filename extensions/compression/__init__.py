"""Finished models in fewer bytes and less time, and what flipped bits do to them.

`compress_flow` tries smaller forms of linear layers as rivals (`rivals`): each pass (`int8_pass`, `product_pass`,
`pruning_pass`) makes a model whose layers have a form (`layer_forms`). `packing` stores weights in few bits;
`memory_limit` packs as many members of an ensemble as lower the loss within a limit. `robustness` injects bit flips.
"""
