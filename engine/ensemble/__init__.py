"""Ensembles: weights of the members, and the comparison of an ensemble with its best member."""
