"""The training loop: steps, losses, evaluation, compilation."""
