"""Assertions of test files, rewritten once for all workers of pytest; each would rewrite them all after a checkout."""

import multiprocessing
import os
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

TESTS = Path(__file__).parent


def rewrite_assertions(config: pytest.Config) -> None:
    """Rewrite the files that have changed, on all cores, and keep the results where pytest looks for them."""
    files, cores = sorted(TESTS.rglob("test_*.py")), os.cpu_count() or 1
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_rewrite, args=(files[core::cores], config)) for core in range(cores)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


def _rewrite(files: list[Path], config: pytest.Config) -> None:
    state = config.stash[rewrite.assertstate_key]
    for file in files:
        kept = rewrite.get_cache_dir(file) / f"{file.stem}{rewrite.PYC_TAIL}"
        if rewrite._read_pyc(file, kept) is None and rewrite.try_makedirs(kept.parent):
            source_hash, code = rewrite._rewrite_test(file, config)
            rewrite._write_pyc(state, code, source_hash, kept)
