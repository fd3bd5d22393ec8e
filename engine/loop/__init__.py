"""Training loop: steps, losses, evaluation, compilation."""
