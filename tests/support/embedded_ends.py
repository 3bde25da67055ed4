"""Every kind of end on the embedded model, as JSON: run in a process of its own, with the BLAS it needs to be quick.

``python -m tests.support.embedded_ends MODELS_FOLDER BLAS_FOLDER``
"""

import json
import sys
from datetime import date
from pathlib import Path
from typing import Any

from qmlx_lsp.engine.mlx.blas import preload

QUESTION = "Name the days of the week."
SHORT_ANSWER = "What is the capital of France?"
TOKENS = 20


def main() -> None:
    preload(Path(sys.argv[2]))
    from qmlx_lsp.engine.mlx.backend import MlxBackend

    backend = MlxBackend(Path(sys.argv[1]))
    info = backend.load("embedded", lambda *_: None, lambda: False)
    ends = {
        "eos": end(backend, info, question=SHORT_ANSWER),
        "length": end(backend, info, max_tokens=6),
        "stop": end(backend, info, stop_after=4),
        "cancel in decode": end(backend, info, cancel_after=3),
        "cancel in prefill": end(backend, info, cancel_in_prefill=True),
    }
    sys.stdout.write(json.dumps(ends))


def end(
    backend: Any, info: Any, *, question: str = QUESTION, max_tokens: int = 40, stop_after: int | None = None,
    cancel_after: int | None = None, cancel_in_prefill: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """How the reply ended, and whether live and cold runs over what was read go on alike for ``TOKENS`` tokens."""
    from qmlx_lsp.engine.backend import Sampling
    from qmlx_lsp.engine.generation import Job, generate

    transcript = asked(info, question)
    header, wanted = transcript.reply_header(), transcript.log.ids()
    state, ids, chunks = backend.new_state(), [], []

    def cancelled() -> bool:
        return (cancel_in_prefill and bool(chunks)) or (cancel_after is not None and len(ids) >= cancel_after)

    def stops(_token: int) -> bool:
        return stop_after is not None and len(ids) >= stop_after

    job = Job(state, wanted, header, info.eos_ids, max_tokens, Sampling(), 8 if cancel_in_prefill else 64, stops)
    outcome = generate(
        backend, job, cancelled=cancelled, on_prefill=lambda done, _total: chunks.append(done), on_token=ids.append
    )
    read = [*wanted, *header, *outcome.ids][: outcome.position]
    live = list(backend.decode(state, header, Sampling(), TOKENS))
    cold = backend.new_state()
    backend.prefill(cold, read)
    same = live == list(backend.decode(cold, header, Sampling(), TOKENS))
    full = len(wanted) + len(header) + len(outcome.ids) if outcome.header_read else sum(chunks[-1:])
    return {"finish": outcome.finish.value, "position": outcome.position, "expected": full, "same": same}


def asked(info: Any, question: str) -> Any:
    from qmlx_lsp.session.model import prepare
    from qmlx_lsp.transcript.entry import Kind
    from qmlx_lsp.transcript.transcript import Transcript

    transcript = Transcript(prepare(info, thinking=False, today=date.today).renderer)
    drafts = [(Kind.SYSTEM, "You are a helpful assistant.", None), (Kind.QUESTION, question, None)]
    transcript.extend(transcript.draft(drafts))
    return transcript


if __name__ == "__main__":
    main()
