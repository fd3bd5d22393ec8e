"""Other ways to compute the same layers (MetaFlow: Jia et al., MLSys 2019, on graphs of torch.fx).

`program` is a family's layers as a graph of plain operators, `rules` are exact changes of such a graph, one file each,
`materialise` makes layers of a graph again, and `scheme` says which changes a model is computed with. `choice` finds
the best here: operators measured (`costs`), graphs searched (`search`, `split`), equality checked (`gate`), the best
measured whole. `compaction` and `packed_activations` change a training step without changing its layers.
"""
