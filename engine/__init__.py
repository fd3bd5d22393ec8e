"""How a model is trained: data sets, batches, prefetch, the step loop, metrics and checkpoints.

Imports torch, numpy and pandas alone (TorchRec where it is installed), so that it runs on a bare GPU machine too.
"""
