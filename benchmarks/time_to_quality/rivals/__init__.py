"""How each rival is driven, in its own environment: from raw files to a model that is kept, by its own documentation.

Each module is started as `python -m benchmarks.time_to_quality.rivals.NAME job.json` and imports nothing of Shunter's
but what lies in this folder.
"""
