"""Smaller forms of finished layers, for scoring alone: what they compute, and where they stand in a model.

Every file with a class of the role in `role` is one form; `forms` names them, and `scheme` says which layer of a model
has which.
"""
