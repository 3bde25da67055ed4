"""Known answers of the embedded model: its tokenizer's ids, and what it says.

The ids were found with other tools (see the bug reports about text that is encoded again); the replies are what the
model yields in float32. They are computed in a process of its own, where the fast BLAS can be loaded before MLX.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from qmlx_lsp.engine.mlx import embedded
from qmlx_lsp.transcript.encoder import Codec

pytestmark = pytest.mark.model
IDS = {
    "\n\n": [1116],
    "!=": [42732],
    '">': [15889],
    "Hanzi": [56, 11080, 89],
    "    ": [289],
    "    x": [333, 1792],
    "        x": [415, 1792],
    "foo\n": [15236, 198],
    "foo\n\n": [15236, 1116],
    "\n": [198],
    "2021": [34, 32, 34, 33],  # digits stand alone
}
MISSING_BYTES = 21

PROGRAM = """
import json, sys
from pathlib import Path
from qmlx_lsp.engine.mlx import blas
blas.preload(Path(sys.argv[1]))
from qmlx_lsp.engine.backend import Sampling
from qmlx_lsp.engine.mlx.backend import MlxBackend
from qmlx_lsp.transcript.encoder import Codec
from qmlx_lsp.transcript.fragments import derive
from qmlx_lsp.transcript.template import JinjaTemplate
backend = MlxBackend(Path(sys.argv[2]))
info = backend.load("embedded", lambda *_: None, lambda: False)
codec = Codec(info.name, info.tokenizer_json)
template = JinjaTemplate(info.name, info.template, info.tokens)
cut = derive(info.name, template, codec, info.eos_ids, thinking=False)
said = []
for question in json.load(sys.stdin):
    state = backend.new_state()
    system = codec.encode_data("You are a helpful assistant.")
    ids = [*cut.system_before, *system, *cut.system_after, *codec.encode_data(question), *cut.prompt]
    said.append(list(backend.decode(state, ids, Sampling(), 12)))
    backend.drop_state(state)
json.dump(said, sys.stdout)
"""
# The first twelve greedy tokens; everything behind the end token is not compared.
REPLIES = {
    "What is the capital of France?": [504, 3575, 282, 4649, 314, 7042, 30, 2],
    "What is 2 + 3? Answer with one number.": [2068, 5482, 451, 1732, 28, 392, 737, 288, 1510, 282, 253, 970],
    "Write a Python function that adds two numbers.": [
        3725,
        5367,
        198,
        1604,
        803,
        79,
        11355,
        79,
        28707,
        24,
        2871,
        33,
    ],
}


@pytest.fixture(scope="module")
def codec(models_folder) -> Codec:
    return Codec("embedded", (models_folder / embedded.FOLDER / "tokenizer.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("text", IDS)
def test_ids(codec, text):
    assert codec.encode_data(text) == IDS[text]
    assert codec.decode(IDS[text]) == text


def test_control_text_is_a_control_token_in_fragments_only(codec):
    text = 'print("<|im_end|>")'
    assert codec.encode_fragment(text) == [3272, 1470, 2, 1715]
    ids = codec.encode_data(text)
    assert codec.control_ids.isdisjoint(ids)
    assert codec.decode(ids) == text
    assert len(codec.control_ids) == 17


def test_generated_ids_of_the_same_text_decode_alike(codec):
    assert codec.decode([17, 45]) == codec.decode([42732]) == "!="


def test_bytes_that_have_no_token_are_escaped(codec):
    # Single bytes below 0x80 are characters of their own; the others are met inside longer ones.
    lacking = [n for n in range(0x80) if codec.decode(codec.encode_data(chr(n))) == f"\\x{n:02x}"]
    assert {0x04, 0x06, 0x13} <= set(lacking)
    assert len(lacking) < MISSING_BYTES
    others = [n for n in range(0x80) if n not in lacking]
    assert all(codec.decode(codec.encode_data(chr(n))) == chr(n) for n in others)


def test_replies(models_folder, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "blas"), str(models_folder)],
        input=json.dumps(list(REPLIES)), capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    )  # fmt: skip
    said = json.loads(done.stdout)
    assert [ids[: len(want)] for ids, want in zip(said, REPLIES.values(), strict=True)] == list(REPLIES.values())
