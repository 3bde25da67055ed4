"""What writing the word at the cursor anew is worth: the first characters of a completion, right or not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path

from benchmarks.places import Place, places
from benchmarks.store.figure import Figure
from qmlx_lsp import paths
from qmlx_lsp.app import backend_factory
from qmlx_lsp.engine.branch import Base, BranchJob, complete
from qmlx_lsp.session.completing import Filling
from qmlx_lsp.session.model import SYSTEM_TEXT, prepare
from qmlx_lsp.session.window import Place as Cursor
from qmlx_lsp.session.window import window
from qmlx_lsp.settings import Settings
from qmlx_lsp.transcript import gap as gaps
from qmlx_lsp.transcript.healing import Healing, open_piece
from qmlx_lsp.transcript.suffix import Tail

INSIDE, AT_START, RIGHT_CHARS, TOKENS = 20, 5, 5, 8


def healing(model: Path) -> Iterator[Figure]:
    """The first characters of a completion, right or not, with the unfinished word read and with it written anew."""
    right = dict.fromkeys((False, True), 0)
    for place, healed, text in _healed(model):
        right[healed] += text[:RIGHT_CHARS] == place.rest[:RIGHT_CHARS]
    count = INSIDE + AT_START
    yield Figure(
        f"first {RIGHT_CHARS} characters right, with healing / without", round(right[True] / max(1, right[False]), 3),
        "×", 2.0, least=True, more={"places": count, "healed": right[True], "plain": right[False]},
    )  # fmt: skip


def _healed(model: Path) -> Iterator[tuple[Place, bool, str]]:
    settings = replace(Settings(), model=replace(Settings().model, name=str(model)))
    backend = backend_factory(paths.find(), settings)()
    info = backend.load(str(model), lambda _done, _total, _what: None, lambda: False)
    loaded = prepare(info, thinking=False, today=date.today)
    codec, filling = loaded.renderer.codec, Filling.of(loaded, "auto")
    for place in places(INSIDE, AT_START, RIGHT_CHARS):
        cursor = Cursor(place.name, "python", place.lines, place.line, place.column, invoked=False)
        seen = window(cursor, settings.inline, settings.inline.max_lines)
        assert seen is not None
        head = gaps.head(loaded.renderer, None, Tail(), seen.gap, SYSTEM_TEXT)
        state = backend.new_state()
        for healed in (False, True):
            again = open_piece(codec, seen.before) if healed else ""
            job = BranchJob(
                state=state,
                bases=[Base(0, head.ids)],
                text=gaps.text(codec.encode_data, None, seen.gap, seen.before.removesuffix(again)),
                eos_ids=gaps.ends(codec, info.eos_ids),
                max_tokens=TOKENS,
                chunk_tokens=512,
                allowed=Healing(codec, filling.vocabulary, again) if again else None,
            )
            found = complete(backend, job, lambda: False)
            assert found is not None
            yield place, healed, codec.decode(found.ids).removeprefix(again)
        backend.drop_state(state)
