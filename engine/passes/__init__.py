"""Passes: changes to a training job or a trained model that are measured, and kept only if they are worthwhile.

`role` defines a pass, lists the passes by name and tries them; `record` stores the outcomes.
"""
