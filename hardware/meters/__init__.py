"""What work draws: counters, integrals, estimates, each with its method and uncertainty."""
