"""Training of the learned scheduling policy on simulated rollouts; snapshots of its cycles form an ensemble."""
