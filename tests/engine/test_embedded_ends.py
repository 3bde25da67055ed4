"""After every kind of end, the embedded model goes on from its live state as a cold run over the same ids would.

Exception ends are tested on the tiny models, where an exception can be raised inside the model.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FINISHES = {
    "eos": "complete",
    "length": "length",
    "stop": "complete",
    "cancel in decode": "cancelled",
    "cancel in prefill": "cancelled",
}


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_state_equals_log_after_every_kind_of_end(models_folder, tmp_path):
    command = [sys.executable, "-m", "tests.support.embedded_ends", str(models_folder), str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, check=True)
    ends = json.loads(done.stdout)
    assert {name: end["finish"] for name, end in ends.items()} == FINISHES
    assert all(end["position"] == end["expected"] for end in ends.values()), ends
    assert all(end["same"] for end in ends.values()), ends
