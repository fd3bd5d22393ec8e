"""Every folder of the project is a part of the one package `shunter`; all other settings are in pyproject.toml."""

from setuptools import Extension, find_packages, setup

FOLDERS = (
    *("operation", "flows", "tasks", "reporting", "planner", "search", "retraining", "serving", "tracking"),
    *("ingestion", "engine", "models", "hardware", "extensions"),
)

# Loaded by its C interface. It is left out where there is no compiler. It takes OpenMP from torch, so it links none.
# Products and sums are contracted on every processor since AVX2, so that a step gives the same bits on all of them.
NATIVE_KERNELS = Extension(
    "shunter.models.native._kernels",
    ["models/native/kernels.cpp"],
    language="c++",
    extra_compile_args=["-O3", "-std=c++17", "-fopenmp", "-ffp-contract=fast", "-g0"],
    optional=True,
)

setup(
    ext_modules=[NATIVE_KERNELS],
    package_dir={f"shunter.{folder}": folder for folder in FOLDERS},
    packages=[
        *find_packages(include=["shunter", "shunter.*"]),
        *(f"shunter.{name}" for name in find_packages(include=[p for f in FOLDERS for p in (f, f"{f}.*")])),
    ],
)
