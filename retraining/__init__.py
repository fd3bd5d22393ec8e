"""Nightly retraining: days of a log, unusual days, challengers and champions."""
