"""Passes: changes to a training or to a finished model that are tried, measured, and kept only where they gain.

`role` says what a pass is, `trial` tries one, `record` is what is kept of the trial, and `registry` names the passes.
"""
