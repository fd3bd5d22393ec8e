"""Trials: how they are run, recorded, stopped early and resumed."""
