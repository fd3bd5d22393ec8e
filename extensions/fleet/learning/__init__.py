"""How the learned policy comes about: traces to learn from, rollouts, training in cycles, and the ensemble."""
