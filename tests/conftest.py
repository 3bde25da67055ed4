"""How the tests share a machine: the files that take longest come first (last, each of them would keep one core busy
and the others waiting), and where there is a process for every core, none computes with more than one thread. Whole
files and folders of slow tests are named here, the fast part of them is left to the units."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # threads that wait for each other would wait for other tests

TESTS = Path(__file__).parent
# Longest first; what is not named takes seconds.
LONG = (
    "engine/test_demo.py",
    "e2e/test_lsp_embedded.py",
    "property/test_real_states.py",
    "crash/test_kill.py",
    "corpus/test_histories.py",
    "e2e/test_log_cli.py",
    "corpus/test_tokenizers.py",
    "e2e/test_lsp_every_await.py",
    "property/test_edit_fuzz.py",
    "engine/test_lookup.py",
    "corpus/test_growing.py",
)
# Left out of the quick check, as are the folders that the Makefile names.
SLOW = (
    "e2e/test_lsp_faults.py", "e2e/test_lsp_edits.py", "e2e/test_lsp_answers.py", "e2e/test_lsp_inline_cost.py",
    "e2e/test_lsp_inline_hard.py", "e2e/test_context_cli.py", "unit/session/test_process.py",
    "unit/storage/test_upkeep", "unit/benchmarks_cachecheck/test_whole_runs.py",
    "unit/benchmarks_cachecheck/test_openai.py", "unit/benchmarks_sidebyside/test_summary.py",
    "unit/cli/test_configure.py",
)  # fmt: skip
_RANK = {TESTS / name: at for at, name in enumerate(LONG)}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        place = item.path.relative_to(TESTS).as_posix()
        if place.startswith(SLOW):
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: _RANK.get(item.path, len(LONG)))
