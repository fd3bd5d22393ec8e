"""Members combined: weights, and whether the combination is better than its best member."""
