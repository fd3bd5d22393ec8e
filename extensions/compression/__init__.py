"""Compression of trained models for size and speed, and their quality under bit flips.

`compress_flow` tries smaller forms of linear layers as alternatives. Each pass (`compression_passes`, `product_pass`)
builds a model whose layers have a new form (`layer_forms`). Module `packing` stores weights in few bits. `memory_limit`
packs as many members of an ensemble as reduce the loss within a limit. `robustness` injects bit flips.
"""
