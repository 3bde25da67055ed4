"""The demo itself, with the embedded model: the counts it promises. Times are for the benchmarks."""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from qmlx_lsp.engine.mlx import embedded

ROOT = Path(__file__).parents[2]


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_each_step_does_only_the_work_it_must(models_folder, tmp_path):
    environment = {**os.environ, "QMLX_HOME": str(tmp_path / "home")}
    model = models_folder / embedded.FOLDER
    command = [sys.executable, "-m", "qmlx_lsp", "demo", "--json", "--model", str(model)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    usages = [row["usage"] for row in rows]
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert [usage["plan"] for usage in usages] == ["cold", "live", "live", "live", "live", "restore"]
    assert usages[0]["prefilled"] == usages[0]["context"] > 1500
    assert rows[3]["finish"] == "cancelled"
    for before, usage in itertools.pairwise(usages):
        assert usage["live"] + usage["restored"] + usage["prefilled"] == usage["context"]
        # What was there is the former context and the former reply: nothing of it is read again.
        assert usage["prefilled"] == usage["context"] - before["context"] - before["generated"]
    assert usages[5]["restored"] >= 0.95 * usages[5]["context"]
