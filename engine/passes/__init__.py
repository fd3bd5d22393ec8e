"""Passes: changes to a training job or to a finished model that are tried, measured, and kept only if they gain.

`role` defines a pass, `trial` tries passes, `record` stores the outcomes, and `registry` lists the passes by name.
"""
