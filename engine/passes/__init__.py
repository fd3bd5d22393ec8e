"""Passes: changes to a training job or a trained model that are measured, and kept only if they are worthwhile.

`role` defines a pass, `trial` tries passes, `record` stores the outcomes, and `registry` lists the passes by name.
"""
