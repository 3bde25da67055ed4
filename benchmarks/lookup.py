"""Rewriting code with and without drafting it from its source: ``python -m benchmarks.lookup``.

* forced: the embedded model's arg max follows a function of 60 lines of which one has changed; its passes and their
  cost are its own. Ids a forward pass, and the time of plain decoding over that of drafting, side by side;
* own: what the model itself writes when asked for that change, and whether drafting changes it;
* hybrid: the same on a tiny random model whose states cannot be cut: ids a forward pass;
* rows: how many rows a pass gets on this machine, and what passes of 1 to 32 rows take.

Ratios are medians of pairs in random order.
``--json FILE`` writes all of it. The exit code is 1 when a gate is missed.
"""

from __future__ import annotations

import argparse
import doctest
import inspect
import json
import os
import statistics
import textwrap
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.machine import machine
from benchmarks.store.figure import Figure, pairs, ratio, table, tell
from qmlx_lsp.engine.backend import Sampling, StateId
from qmlx_lsp.engine.mlx.blas import preload
from qmlx_lsp.transcript.encoder import Codec
from tests.support import corpus

FUNCTION = doctest.DocTestFinder._find  # 60 lines of the standard library
CHANGED = "raise NotImplementedError('this was another line')"
ROUNDS = 3
OWN_TOKENS = 200


@dataclass
class Written:
    """What one reply took; ``tokens`` a pass do not count the pass over the reply's head."""

    ids: list[int]
    passes: int
    seconds: float

    @property
    def ids_a_pass(self) -> float:
        return len(self.ids) / (self.passes - 1)


def main() -> int:
    given = _arguments()
    preload(corpus.models() / "blas")
    found = [*embedded_figures(given.rounds), *hybrid_figures()]
    print(table(found))
    if given.json:
        threads = os.environ.get("OPENBLAS_NUM_THREADS", "all")  # beside other work, threads wait for each other
        about = {"when": datetime.now(UTC).date().isoformat(), "machine": machine() | {"blas_threads": threads}}
        text = json.dumps(about | {"figures": [figure.as_dict() for figure in found]}, indent=1)
        Path(given.json).write_text(text + "\n", encoding="utf-8")
    return int(any(figure.verdict == "MISS" for figure in found))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lookup", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="pairs of plain and drafted replies")
    parser.add_argument("--json", "--out", metavar="FILE", help="write all figures to this file")
    return parser.parse_args()


def texts() -> tuple[str, str]:
    """The function, and the function with one line changed."""
    lines = textwrap.dedent(inspect.getsource(FUNCTION)).splitlines(keepends=True)
    middle = next(n for n in range(len(lines) // 2, len(lines)) if lines[n].strip())
    indent = lines[middle][: len(lines[middle]) - len(lines[middle].lstrip())]
    return "".join(lines), "".join([*lines[:middle], f"{indent}{CHANGED}\n", *lines[middle + 1 :]])


def write(backend: Any, state: StateId, header: Sequence[int], most: int, source: Sequence[int]) -> Written:
    """One reply, after which the state is where it was."""
    mark, before = backend.mark(state), backend.passes.passes
    began = time.perf_counter()
    with closing(backend.decode(state, header, Sampling(), most, source=source)) as stream:
        ids = list(stream)
    written = Written(ids, backend.passes.passes - before, time.perf_counter() - began)
    backend.rewind(state, mark)
    return written


def compare(
    name: str, backend: Any, state: StateId, header: Sequence[int], most: int, source: Sequence[int], rounds: int
) -> tuple[float, list[Written], list[Written]]:
    """Plain over drafted time, and all replies of both kinds."""
    plain: list[Written] = []
    drafted: list[Written] = []

    def one(kept: list[Written], copied: Sequence[int]) -> float:
        kept.append(write(backend, state, header, most, copied))
        tell(f"{name}: {kept[-1].seconds:.1f} s, {kept[-1].passes} passes")
        return kept[-1].seconds

    return ratio(pairs(lambda: one(plain, ()), lambda: one(drafted, source), rounds)), plain, drafted


def embedded_figures(rounds: int) -> list[Figure]:
    from qmlx_lsp.engine.mlx.backend import MlxBackend
    from qmlx_lsp.engine.mlx.caches import make_caches
    from qmlx_lsp.engine.mlx.calibrate import best_rows, measure
    from tests.support.forced import Forced

    backend = MlxBackend(corpus.models())
    info = backend.load("embedded", lambda *_report: None, lambda: False)
    codec = Codec(info.name, info.tokenizer_json)
    before, after = texts()
    question = f"Rewrite this function so that its middle line reads {CHANGED}\n\n```python\n{before}```\n"
    prompt = codec.encode_fragment(f"<|im_start|>user\n{question}<|im_end|>\n")
    header = codec.encode_fragment("<|im_start|>assistant\n")
    source, wanted = (codec.encode_data(f"```python\n{text}```\n") for text in (before, after))
    times = measure(backend._model, make_caches(backend._model), source)
    backend._rows = best_rows(times)
    state = backend.new_state()
    for at in range(0, len(prompt), 256):
        backend.prefill(state, prompt[at : at + 256])

    model = backend._counted._model
    backend._counted._model = Forced(model, len(prompt) + len(header), wanted)
    gain, _, drafted = compare("forced", backend, state, header, len(wanted), source, rounds)
    backend._counted._model = model
    own_ratio, plain, own = compare("own", backend, state, header, OWN_TOKENS, source, 1)
    assert all(reply.ids == wanted for reply in drafted), "the reply is not what it was forced to"
    sizes = {"lines": before.count("\n"), "tokens": len(wanted), "passes": drafted[0].passes}
    seconds = round(statistics.median(reply.seconds for reply in drafted), 2)
    return [
        Figure("forced: ids a forward pass", drafted[0].ids_a_pass, "", goal=10, least=True, more=sizes),
        Figure("forced: plain over drafted time", gain, goal=2.5, least=True, more={"drafted_s": seconds}),
        Figure("own text: drafting changes it", float(own[0].ids != plain[0].ids), "", goal=0),
        Figure("own text: plain over drafted time", own_ratio, more={"ids_a_pass": round(own[0].ids_a_pass, 2)}),
        Figure("rows of a pass", backend._rows, "", more={f"ms_{n}": round(s * 1000, 1) for n, s in times.items()}),
    ]


def hybrid_figures() -> list[Figure]:
    from qmlx_lsp.engine.mlx.backend import MlxBackend
    from tests.support import tiny_models
    from tests.support.forced import Forced

    backend = MlxBackend(Path("unused"), draft_rows=16)
    before, after = (list(text.encode()) for text in texts())  # its ids are bytes
    model = tiny_models.make("hybrid")
    backend.use(Forced(model, 1, after), needs_snapshot=True)
    state = backend.new_state()
    written = write(backend, state, [0], len(after), before)
    assert written.ids == after, "the reply is not what it was forced to"
    return [Figure("hybrid, 16 rows at most: ids a forward pass", written.ids_a_pass, "", more={"ids": len(after)})]


if __name__ == "__main__":
    raise SystemExit(main())
