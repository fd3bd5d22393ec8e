"""Every folder of the project is a part of the one package `shunter`; pyproject.toml holds all else."""

from setuptools import find_packages, setup

FOLDERS = (
    *("operation", "flows", "tasks", "reporting", "planner", "search", "retraining", "serving", "tracking"),
    *("ingestion", "engine", "models", "hardware", "extensions"),
)

setup(
    package_dir={f"shunter.{folder}": folder for folder in FOLDERS},
    packages=[
        *find_packages(include=["shunter", "shunter.*"]),
        *(f"shunter.{name}" for name in find_packages(include=[p for f in FOLDERS for p in (f, f"{f}.*")])),
    ],
)
