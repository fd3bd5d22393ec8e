"""Graph rewriting: search for faster computations that equal a model's layers (MetaFlow: Jia et al., MLSys 2019).

`program` represents a family's layers as a torch.fx graph of operators, `rules` are exact changes of such a graph.
`materialise` converts a graph to layers, and `scheme` saves the changes of a model. `choice` finds the fastest graph:
it measures operators (`costs`), searches graphs (`search`), checks equality, and measures the best graphs as a whole.
`lean_steps` change a training step without changing its layers.
"""
