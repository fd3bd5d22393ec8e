"""Many trainings on one cluster: policies, simulator, live driver, a policy that learns, and moves of a training."""
