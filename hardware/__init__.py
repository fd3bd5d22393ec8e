"""Where a model is trained: accelerators, meters, probes and the cost model. Knows no orchestrator and no model."""
