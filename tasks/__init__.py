"""The steps. One folder is one step: its `__init__` exports the Prefect task, the files beside it do the work."""
