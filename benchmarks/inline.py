"""The figures of completions while somebody types: ``python -m benchmarks.inline``.

* typing: characters of the standard library are typed in an editor, one by one, each with a request: tokens read per
  keystroke behind the first, with the embedded model and with a tiny hybrid (random weights, the same tokenizer);
  what the server adds to the model's own time; what is read while a suggestion is typed through;
* during: how long a completion waits for an answer that runs, and whether the answer is what it would have been;
* healing: places in the standard library where the first five characters are right, with and without.

Everything goes through the protocol, but healing, which asks the engine. ``--json FILE`` writes all of it. The exit
code is 1 when a gate is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.healing import healing
from benchmarks.machine import machine
from benchmarks.places import Place, places
from benchmarks.store.figure import Figure, table, tell
from qmlx_lsp import paths
from qmlx_lsp.app import SWITCH_S, App, backend_factory
from qmlx_lsp.engine.backend import Backend, ModelInfo, Report
from qmlx_lsp.engine.mlx import embedded
from qmlx_lsp.session.event import Answer, Ask, Job
from qmlx_lsp.settings import Settings
from tests.support.bench import paths_in
from tests.support.fake_editor import InMemory, edit, initialize_params

PLACES, KEYS, TOKENS = 6, 25, 8
ANSWER_TOKENS, DURING = 80, 6


def main() -> int:
    given = _arguments()
    sys.setswitchinterval(SWITCH_S)
    model = embedded.ensure(paths.find().models, lambda _done, _total, _what: None, lambda: False)
    parts: dict[str, Callable[[Path], Iterator[Figure]]] = {"typing": typing, "during": during, "healing": healing}
    found: list[Figure] = []
    for name in given.only or parts:
        tell(f"{name} …")
        for figure in parts[name](model):
            tell(f"{figure.name}: {figure.value:g} {figure.unit}")
            found.append(figure)
    print(table(found))
    if given.json:
        when = datetime.now(UTC).date().isoformat()
        report = {"when": when, "machine": machine(), "figures": [figure.as_dict() for figure in found]}
        Path(given.json).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return int(any(figure.verdict == "MISS" for figure in found))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", choices=["typing", "during", "healing"], help="one part")
    parser.add_argument("--json", help="write all figures to this file")
    return parser.parse_args()


# --- an editor ------------------------------------------------------------------------------------------------------


class Desk:
    """A daemon in this process, and an editor that types."""

    def __init__(self, app: App, editor: InMemory, root: Path) -> None:
        self.app = app
        self.editor = editor
        self.root = root
        self._versions = itertools.count(2)

    def open(self, place: Place) -> Path:
        file = self.root / place.name
        self.editor.open(file, "".join(place.lines))
        return file

    def type(self, file: Path, line: int, column: int, text: str) -> None:
        self.editor.change(file, next(self._versions), edit(line, column, column, text))

    async def complete(self, file: Path, line: int, column: int) -> float:
        """Milliseconds from the request to the answer."""
        params = {
            "textDocument": {"uri": file.as_uri()}, "position": {"line": line, "character": column},
            "context": {"triggerKind": 2},
        }  # fmt: skip
        known, began = len(self.editor.messages), time.perf_counter()
        number = self.editor.begin("textDocument/inlineCompletion", params)
        # From the newest message on: looking through all of them would be the editor's time, not the server's.
        answer = self.editor.until(lambda m: "method" not in m and m["id"] == number, known)
        assert "error" not in await asyncio.wait_for(answer, 600)
        return (time.perf_counter() - began) * 1000

    @property
    def status(self) -> dict[str, Any]:
        return self.app.registry.inline.status()

    async def ask(self, text: str) -> Answer:
        return await self.app.registry.ask(self.root, Ask(text, max_tokens=ANSWER_TOKENS), Job())


@asynccontextmanager
async def desk(model: Path, make: Callable[[], Backend] | None = None) -> AsyncIterator[Desk]:
    settings = Settings()
    settings = replace(
        settings,
        model=replace(settings.model, name=str(model)),
        inline=replace(settings.inline, debounce_ms=0, debounce_max_ms=0, max_tokens=TOKENS),
        ahead=replace(settings.ahead, enabled=False),
        store=replace(settings.store, free_floor_gib=0.0),
    )
    with tempfile.TemporaryDirectory(prefix="qmlx-") as base:
        where, root = paths_in(Path(base)), Path(base) / "project"
        root.mkdir()
        app = App(where, settings, make or backend_factory(where, settings))
        editor = InMemory(app)
        await editor.initialize(initialize_params("vscode-1.139", root))
        await app.registry.session(root)
        yield Desk(app, editor, root)
        await editor.drop()
        await app.stop()


# --- typing ---------------------------------------------------------------------------------------------------------


def typing(model: Path) -> Iterator[Figure]:
    """Keystroke by keystroke, with rows that can be cut and with a state that cannot."""
    kinds: dict[str, tuple[Callable[[], Backend] | None, float]] = {
        "attention only": (None, 1.1),
        "hybrid": (lambda: _hybrid(model), 4.5),
    }
    for name, (make, goal) in kinds.items():
        keys, first, added, through = asyncio.run(_typed(model, make))
        yield _figure(f"{name}: tokens read per keystroke", statistics.mean(keys), "", goal, keystrokes=len(keys),
                      most=max(keys), first=statistics.mean(first))  # fmt: skip
        if make is None:
            p99 = statistics.quantiles(added, n=100)[98]
            yield _figure("server's own time per request, median", statistics.median(added), "ms", 5.0, 10.0, p99=p99)
            yield _figure(
                "tokens read while typing through", statistics.mean(through), "", 0, keystrokes=len(through)
            )


async def _typed(
    model: Path, make: Callable[[], Backend] | None
) -> tuple[list[int], list[int], list[float], list[int]]:
    """Tokens read behind the first keystroke of a place, and at it; what the server added in ms; tokens read at
    keystrokes that went along with what was shown."""
    keys, first, added, through = [], [], [], []
    async with desk(model, make) as here:
        await here.ask("What is this project about?")
        for number, place in enumerate(places(PLACES, 0, KEYS)):
            file = here.open(replace(place, name=f"{number}_{place.name}"))
            for typed in range(KEYS):
                if typed:
                    here.type(file, place.line, place.column + typed - 1, place.rest[typed - 1])
                before, rows = here.status["typed_through"], here.app.registry.inline.last
                took = await here.complete(file, place.line, place.column + typed)
                last = here.status["last"]
                if here.status["typed_through"] > before:
                    through.append(0 if here.app.registry.inline.last is rows else last["prefilled"])
                elif not typed:
                    first.append(last["prefilled"])
                else:
                    keys.append(last["prefilled"])
                    added.append(took - last["prefill_ms"] - last["decode_ms"])
    return keys, first, added, through


def _hybrid(model: Path) -> Backend:
    """A backend with a tiny random hybrid model under the tokenizer of ``model``."""
    from qmlx_lsp.engine.mlx.backend import MlxBackend

    class Hybrid(MlxBackend):
        def load(self, source: str, report: Report, cancelled: Callable[[], bool]) -> ModelInfo:
            info = super().load(source, report, cancelled)
            tokens = len(json.loads(info.tokenizer_json)["model"]["vocab"]) + 64
            self.use(_tiny(tokens), needs_snapshot=True)
            return replace(info, name="tiny hybrid", fingerprint=b"tiny hybrid 0001", needs_snapshot=True)

    return Hybrid(model.parent)


def _tiny(tokens: int) -> Any:
    """Recurrent and attention layers, random weights."""
    import mlx.core as mx
    from mlx_lm.models import qwen3_5

    mx.random.seed(1)
    text = {
        "model_type": "qwen3_5_text", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": tokens,
        "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8,
        "linear_value_head_dim": 8, "linear_conv_kernel_dim": 4, "full_attention_interval": 2,
        "tie_word_embeddings": True,
        "rope_parameters": {"type": "default", "rope_theta": 100000, "partial_rotary_factor": 0.5},
    }  # fmt: skip
    made = qwen3_5.Model(qwen3_5.ModelArgs(model_type="qwen3_5", text_config=text))
    mx.eval(made.parameters())
    return made


# --- during ---------------------------------------------------------------------------------------------------------


def during(model: Path) -> Iterator[Figure]:
    """Completions while an answer is generated."""
    waited, same = asyncio.run(_during(model))
    yield _figure("waits for an answer that runs, decode steps", max(waited), "", 2.0, 3.0, requests=len(waited))
    yield _figure("answer is what it would have been", float(same), "", 1.0, least=True)


async def _during(model: Path) -> tuple[list[float], bool]:
    """Decode steps of the answer before each completion began, and whether the answer was the same."""
    place = places(1, 0, KEYS)[0]
    question = "Explain in a few sentences what a hash table is."
    async with desk(model) as here:
        await here.ask("Hello.")
        file = here.open(place)
        await here.complete(file, place.line, place.column)
        expected = (await here.ask(question)).text
    async with desk(model) as here:
        await here.ask("Hello.")
        file = here.open(place)
        await here.complete(file, place.line, place.column)
        waited: list[float] = []
        worker = here.app.registry.services.worker
        steps, asked, let_in = [0], [0], worker.let_in

        def counted(backend: Backend) -> None:
            steps[0] += 1
            if worker.waiting:
                waited.append(steps[0] - asked[0])
            let_in(backend)

        worker.let_in = counted  # type: ignore[method-assign]
        begun = asyncio.Event()
        job = Job(on_text=lambda _delta: begun.set())
        answering = asyncio.create_task(
            here.app.registry.ask(here.root, Ask(question, max_tokens=ANSWER_TOKENS), job)
        )
        await begun.wait()
        for typed in range(DURING):
            here.type(file, place.line, place.column + typed, place.rest[typed])
            asked[:] = steps
            await here.complete(file, place.line, place.column + typed + 1)
        answer = await answering
    return [float(steps) for steps in waited], answer.text == expected


def _figure(
    name: str, value: float, unit: str, goal: float | None = None, gate: float | None = None, *,
    least: bool = False, **more: Any,
) -> Figure:  # fmt: skip
    rounded = {key: round(number, 2) for key, number in more.items()}
    return Figure(name, round(value, 3), unit, goal, gate, least=least, more=rounded)


if __name__ == "__main__":
    sys.exit(main())
