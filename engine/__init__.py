"""Training engine: data sets, batches, prefetch, the step loop, metrics and checkpoints.

The engine imports only torch, numpy and pandas (and TorchRec if installed), so that it runs on a bare GPU machine too.
"""
