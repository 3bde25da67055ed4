"""The transcript's figures on this machine: ``python -m benchmarks.transcript``.

* suffix: rendering and encoding context blocks of 4,000 tokens of real source, less the tokenizer's own encoding of
  the same texts; for the embedded model, the scripted one, and the real tokenizers that the tests have fetched;
* open: what a session does to open a conversation of 200,000 tokens in 5,000 entries;
* memory: what stays of it, in a process of its own.

Times are medians, of interleaved rounds where two sides are compared; what a first call costs stands beside them.
``--json FILE`` writes all of it. The exit code is 1 when a gate is missed.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import statistics
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

import qmlx_lsp
from benchmarks.machine import machine
from benchmarks.store.figure import Figure, apart, pairs, resident, table, tell
from qmlx_lsp import paths
from qmlx_lsp.engine.mlx import embedded
from qmlx_lsp.engine.scripted import ScriptedBackend
from qmlx_lsp.session.model import LoadedModel, prepare
from qmlx_lsp.storage.conversations import ConversationLog
from qmlx_lsp.transcript.encoder import Codec
from qmlx_lsp.transcript.entry import Entry, Finish, Kind
from qmlx_lsp.transcript.suffix import Place, Renderer, Tail
from qmlx_lsp.transcript.transcript import Transcript
from tests.support import corpus

SUFFIX_TOKENS, SUFFIX_ROUNDS = 4_000, 101
TOKENS, ENTRIES, FILES = 200_000, 5_000, 200
OPEN_ROUNDS = 101
MIB = 1 << 20


def main() -> int:
    given = _arguments()
    parts = {"suffix": suffixes, "open": opening, "memory": memory}
    found = []
    for name in given.only or parts:
        tell(f"{name} …")
        found += parts[name]()
    print(table(found))
    if given.json:
        about = {"when": datetime.now(UTC).date().isoformat(), "machine": machine()}
        text = json.dumps(about | {"figures": [figure.as_dict() for figure in found]}, indent=1)
        Path(given.json).write_text(text + "\n", encoding="utf-8")
    return int(any(figure.verdict == "MISS" for figure in found))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.transcript", description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", choices=["suffix", "open", "memory"], help="only this part")
    parser.add_argument("--json", metavar="FILE", help="write all figures to this file")
    return parser.parse_args()


def _timed(work: Callable[[], Any]) -> float:
    """Milliseconds."""
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


def _scripted() -> LoadedModel:
    info = ScriptedBackend().load("scripted", lambda *_: None, lambda: False)
    return prepare(info, thinking=False, today=lambda: date(2026, 1, 1))


# --- suffix ---------------------------------------------------------------------------------------------------------


def suffixes() -> Iterator[Figure]:
    for name, described in _tokenizers():
        yield apart(_suffix, name, described)


def _tokenizers() -> Iterator[tuple[str, str]]:
    yield "scripted", _scripted().info.tokenizer_json
    models = os.environ.get("QMLX_TEST_MODELS")
    small = (Path(models) if models else paths.find().models) / embedded.FOLDER / "tokenizer.json"
    found = {"embedded": small} | {name: corpus.folder() / name / "tokenizer.json" for name in corpus.TOKENIZERS}
    for name, file in found.items():
        if file.exists():
            yield name, file.read_text(encoding="utf-8")
        else:
            tell(f"suffix: the tokenizer {name} is not here")


def _suffix(name: str, described: str) -> Figure:
    """A context block needs nothing of the template, so that all are rendered with the scripted model's."""
    codec, own = Codec(name, described), Tokenizer.from_str(described)
    renderer, tail = Renderer(_scripted().renderer.fragments, codec, frozenset()), Tail(Place.OPEN)
    blocks = _blocks(codec)

    def ours() -> int:
        return sum(len(renderer.suffix(tail, Kind.CONTEXT, block)) for block in blocks)

    def theirs() -> int:
        return sum(len(own.encode(block, add_special_tokens=False).ids) for block in blocks)

    first = _timed(ours)  # which also looks up the bytes of every token for the first time
    theirs()
    found = pairs(lambda: _timed(ours), lambda: _timed(theirs), SUFFIX_ROUNDS)
    on_top = sorted(one - two for one, two in found)
    more = {
        "tokens": ours(),
        "blocks": len(blocks),
        "own_ms": statistics.median(two for _, two in found),
        "quartiles_ms": f"{on_top[len(on_top) // 4]:.2f} to {on_top[len(on_top) * 3 // 4]:.2f}",
        "first_ms": first,
    }
    return Figure(
        f"suffix on top of the tokenizer: {name}", statistics.median(on_top), "ms", goal=10, gate=20, more=more
    )


def _blocks(codec: Codec) -> list[str]:
    """This package's own files as context blocks, together of about SUFFIX_TOKENS; the last one is cut at a line."""
    blocks, left = [], SUFFIX_TOKENS
    for file in sorted(Path(qmlx_lsp.__file__).parent.rglob("*.py")):
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        taken = [f"File {file.name}:\n", "```python\n"]
        for line in lines:
            count = len(codec.encode_data(line))
            if count > left:
                break
            taken.append(line)
            left -= count
        blocks.append("".join([*taken, "```\n"]))
        if len(taken) < len(lines) + 2:
            return blocks
    raise AssertionError("the package is longer than that")


# --- opening --------------------------------------------------------------------------------------------------------


def opening() -> Iterator[Figure]:
    yield apart(_open)


def memory() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="qmlx-") as folder:
        _fill(Path(folder) / "log.sqlite3")
        yield apart(_resident, folder)
        yield apart(_traced, folder)


def _fill(path: Path) -> None:
    """A conversation of files, questions and replies in turn."""
    source = "".join(f.read_text(encoding="utf-8") for f in sorted(Path(qmlx_lsp.__file__).parent.rglob("*.py")))
    numbers, each = random.Random(1), TOKENS // ENTRIES
    entries = []
    for n in range(ENTRIES):
        kind = (Kind.CONTEXT, Kind.QUESTION, Kind.ASSISTANT)[n % 3] if n else Kind.SYSTEM
        ids = tuple(numbers.randrange(150_000) for _ in range(each))
        at = numbers.randrange(len(source) - 4 * each)
        finish = Finish.COMPLETE if kind is Kind.ASSISTANT else None
        path_of = f"src/module{n % FILES}.py" if kind is Kind.CONTEXT else None
        entries.append(Entry(kind, source[at : at + 4 * each], ids, n * each, finish, path_of))
    with closing(ConversationLog(path, clock=time.time)) as log:
        log.append(log.open("/p", "i"), entries, {f"src/module{n}.py": "0" * 32 for n in range(FILES)})


def _opened(log: ConversationLog, model: LoadedModel) -> tuple[Transcript, dict[str, str]]:
    """As ``session.open_session`` does."""
    conversation = log.open("/p", "i")
    return Transcript(model.renderer, log.entries(conversation)), log.told(conversation)


def _open() -> Figure:
    model = _scripted()
    with tempfile.TemporaryDirectory(prefix="qmlx-") as folder:
        _fill(Path(folder) / "log.sqlite3")
        with closing(ConversationLog(Path(folder) / "log.sqlite3", clock=time.time)) as log:
            first = _timed(lambda: _opened(log, model))
            transcript, told = _opened(log, model)
            assert (len(transcript.log), len(transcript.entries), len(told)) == (TOKENS, ENTRIES, FILES)
            times = sorted(_timed(lambda: _opened(log, model)) for _ in range(OPEN_ROUNDS))
    more = {
        "fastest": times[0],
        "quartiles_ms": f"{times[len(times) // 4]:.0f} to {times[len(times) * 3 // 4]:.0f}",
        "first_ms": first,
    }
    name = f"opening {TOKENS:,} tokens in {ENTRIES:,} entries"
    return Figure(name, statistics.median(times), "ms", goal=100, gate=200, more=more)


def _resident(folder: str) -> Figure:
    model = _scripted()
    with closing(ConversationLog(Path(folder) / "log.sqlite3", clock=time.time)) as log:
        gc.collect()
        before = resident()
        kept = _opened(log, model)
        gc.collect()
        grown = resident() - before
        assert len(kept[0].log) == TOKENS
    return Figure("… resident memory it adds to a fresh process", grown / MIB, "MiB", goal=20, gate=20)


def _traced(folder: str) -> Figure:
    model = _scripted()
    with closing(ConversationLog(Path(folder) / "log.sqlite3", clock=time.time)) as log:
        gc.collect()
        tracemalloc.start()
        kept = _opened(log, model)
        gc.collect()
        stays, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len(kept[0].log) == TOKENS
    more = {"peak_mib": peak / MIB}
    return Figure("… memory that Python allocates for it", stays / MIB, "MiB", goal=20, gate=20, more=more)


if __name__ == "__main__":
    raise SystemExit(main())
