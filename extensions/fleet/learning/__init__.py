"""Training of the learned policy: traces, simulated rollouts, cyclic training, and the ensemble."""
