"""Learning to rank: training, evaluation and storage of graph models."""
