"""Energy meters: counters, integrals of power sensors, and estimates, each with its method and uncertainty."""
