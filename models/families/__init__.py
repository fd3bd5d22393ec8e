"""One file for each model family: what is above the embedding tables."""
