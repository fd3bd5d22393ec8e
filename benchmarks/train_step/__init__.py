"""One training step against plain PyTorch and TorchRec, and against what the machine can do."""
