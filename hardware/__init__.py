"""Hardware package: accelerators, power meters, probes and the cost model. Imports no orchestrator and no models."""
