"""This daemon and mlx_lm.server side by side: ``python -m benchmarks.sidebyside``.

The same model on the same machine in one run; which one goes first in a round is drawn from the seed. ``--model``
takes any folder that mlx-lm reads, ``embedded`` or ``hybrid`` (both by default). Sizes and rounds are those of the
model, or ``--tokens N[:ROUNDS]``. Everything is written to ``--json`` after each round; a run that finds a report
there, of this machine and seed, goes on behind it. ``--plot`` draws it.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.cachecheck.conversation import CheckError, Context, Target
from benchmarks.cachecheck.own import Own
from benchmarks.machine import load, machine
from benchmarks.sidebyside.models import Model, embedded_folder, make_hybrid, text_of
from benchmarks.sidebyside.peer import MlxLm
from benchmarks.sidebyside.plot import draw
from benchmarks.sidebyside.rounds import Round, Step
from benchmarks.sidebyside.summary import table
from benchmarks.store.figure import tell
from qmlx_lsp.errors import QmlxError

SEED = 20_261_130
SIZES = {
    "embedded": {1_024: 3, 2_048: 2, 4_096: 1, 8_192: 1},
    "hybrid": {2_048: 3, 8_192: 2, 32_768: 1},
}
OTHER_SIZES = {1_024: 3, 4_096: 3, 16_384: 2, 32_768: 2}
TEXT_SHARE = 0.86
"""Of a size, the tokens that are code: the rest is for questions, replies, and the difference after an edit."""


def main(arguments: Sequence[str] | None = None) -> int:
    given = parse(arguments)
    try:
        report = run(given)
    except (QmlxError, OSError) as error:
        print(f"sidebyside: {error}", file=sys.stderr)
        return 2
    print(table(report))
    return 0


def run(given: argparse.Namespace) -> dict[str, Any]:
    """Both servers through all rounds. The report as it is written, at the end."""
    report = _begun(given)
    with ExitStack() as closing:
        scratch = Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="qmlx-")))
        for model in models(given, scratch):
            report["models"][model.name] = {str(size): rounds for size, rounds in model.sizes.items()}
            tell(f"{model.name}: starting both")
            with ExitStack() as ending:
                ours = Own(str(model.folder), timeout_s=given.timeout)
                ending.callback(ours.close)
                peer = MlxLm(model.folder, scratch / f"{model.name}.log", timeout_s=given.timeout)
                ending.callback(peer.close)
                rounds(model, (ours, peer), given, report)
    return report


def _begun(given: argparse.Namespace) -> dict[str, Any]:
    """The report that is there already, or a new one. Raises CheckError when it is one of another run."""
    report: dict[str, Any] = {
        "sidebyside": 1, "when": datetime.now(UTC).date().isoformat(), "machine": machine(), "seed": given.seed,
        "load_before": load(), "models": {}, "servers": {}, "steps": [],
    }  # fmt: skip
    if not given.json or not Path(given.json).exists():
        return report
    try:
        found: dict[str, Any] = json.loads(Path(given.json).read_text(encoding="utf-8"))
        same = all(found[key] == report[key] for key in ("sidebyside", "machine", "seed"))
    except (ValueError, LookupError, TypeError) as error:
        raise CheckError(f"--json {given.json}: what is there is no report of sidebyside.") from error
    if not same:
        raise CheckError(f"--json {given.json}: what is there is of another machine, version or seed; move it away.")
    return found


def rounds(model: Model, targets: Sequence[Target], given: argparse.Namespace, report: dict[str, Any]) -> None:
    began = time.monotonic()

    def note(step: Step) -> None:
        report["steps"].append(step.as_dict())
        cost = "computed unknown" if step.computed is None else f"{step.computed:,} of {step.prompt:,} computed"
        first = "nothing came" if step.ttft_s is None else f"first token {step.ttft_s:.2f} s"
        tell(
            f"{time.monotonic() - began:6.0f} s  {step.tokens:6,}  {step.server:14}  {step.scenario}: {cost}, {first}"
        )

    done = {(step["model"], step["tokens"], step["round"]) for step in report["steps"]}
    for size, times in model.sizes.items():
        for number in range(1, times + 1):
            if (model.name, size, number) in done:
                continue
            texts = _texts(model, size, number, given.seed)
            first = random.Random(f"{given.seed}/{model.name}/{size}/{number}")
            for target in first.sample(list(targets), len(targets)):
                Round(target, model.name, size, number, texts, note, given.seed).run()
                report["servers"][target.name] = target.about()
            report["load_after"] = load()
            _write(report, given.json, given.plot)


def _texts(model: Model, size: int, number: int, seed: int) -> tuple[Context, Context]:
    one, two = (
        text_of(f"{name}_{size}_{number}", round(size * TEXT_SHARE), model.folder / "tokenizer.json", seed)
        for name in ("one", "two")
    )
    return one, two


def _write(report: dict[str, Any], file: str | None, picture: str | None) -> None:
    if file:
        Path(file).write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if picture:
        draw(report, Path(picture))


def models(given: argparse.Namespace, scratch: Path) -> list[Model]:
    """What ``--model`` and ``--tokens`` ask for. Raises CheckError."""
    makers: dict[str, Callable[[], Path]] = {
        "embedded": embedded_folder,
        "hybrid": lambda: make_hybrid(scratch / "hybrid", embedded_folder()),
    }
    made = []
    for name in given.model or SIZES:
        folder = makers[name]() if name in makers else Path(name).expanduser()
        if not (folder / "config.json").is_file():
            raise CheckError(f"--model {name}: no folder with a config.json; embedded, hybrid, or a model's folder.")
        made.append(Model(folder.name if name not in makers else name, folder, _sizes(given, name)))
    return made


def _sizes(given: argparse.Namespace, name: str) -> dict[int, int]:
    if not given.tokens:
        return SIZES.get(name, OTHER_SIZES)
    sizes = {}
    for one in given.tokens:
        size, _, times = one.partition(":")
        try:
            sizes[int(size)] = int(times or 1)
        except ValueError as error:
            raise CheckError(f"--tokens {one}: a number, or NUMBER:ROUNDS.") from error
        if int(size) < 512 or int(times or 1) < 1:
            raise CheckError(f"--tokens {one}: at least 512 tokens, and at least 1 round.")
    return sizes


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.sidebyside", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add = parser.add_argument
    add("--model", action="append", metavar="NAME", help="embedded, hybrid, or a model's folder; several times")
    add("--tokens", action="append", metavar="N[:ROUNDS]", help="a context's size and its rounds; several times")
    add("--seed", type=int, default=SEED, metavar="N")
    add("--timeout", type=float, default=900.0, metavar="S", help="seconds a server may be silent (default: 900)")
    add("--json", metavar="FILE", help="write everything to this file, after every round")
    add("--plot", metavar="FILE", help="draw it: .svg or .png")
    return parser.parse_args(arguments)


def _end(number: int, _frame: object) -> None:
    """What was started is ended; what was measured is in the file."""
    raise CheckError(f"The run was stopped by {signal.Signals(number).name}.")


if __name__ == "__main__":
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, _end)
    sys.exit(main())
