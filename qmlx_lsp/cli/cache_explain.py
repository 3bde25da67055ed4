"""``qmlx-lsp cache explain``: why the last answer was live, restored or cold, what could be restored now, and where
the conversation parts from what is stored.

It must never load a model: its fingerprint and its tokenizer are read from its folder.

Invariant: ids are shown as text only with a tokenizer that turns the conversation's first entry into its own text.
"""

from __future__ import annotations

import argparse
import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qmlx_lsp import paths
from qmlx_lsp.cli import model_text
from qmlx_lsp.cli.output import json_lines, size
from qmlx_lsp.cli.stored import conversation_of, conversations
from qmlx_lsp.errors import QmlxError
from qmlx_lsp.settings import Settings, load
from qmlx_lsp.storage import parting, survey, upkeep
from qmlx_lsp.storage.conversations import TurnRecord
from qmlx_lsp.storage.files import OsFiles
from qmlx_lsp.storage.parting import Parting
from qmlx_lsp.storage.row import Row
from qmlx_lsp.storage.segment import FileRejected
from qmlx_lsp.transcript.encoder import Codec
from qmlx_lsp.transcript.entry import Entry

REASONS = {
    "start": "the daemon had just started, or had not held this conversation yet",
    "restored": "it had been replaced by a restored one",
    "memory": "it had left memory to make room for other conversations (memory.live_gib)",
    "new epoch": "the conversation had filled the model's context, and a new one began",
    "dropped after an error": "an error had left it in doubt",
    "no checkpoint": "no checkpoint of this conversation was stored",
    "incomplete": "parts of its checkpoint were stored, but not all that the model needs",
    "fingerprint": "its checkpoint was made by another model, or by another version of MLX",
    "evicted": "its checkpoint had been removed to keep within the quota (store.quota_gib)",
    "superseded": "its checkpoint had been removed in favour of a later one",
    "merged": "its checkpoint's files had just been joined into larger ones",
    "forgotten": "its checkpoint had been deleted on request",
    "corrupt": "its checkpoint was damaged (a checksum did not match) and was put aside",
    "truncated": "its checkpoint had been cut short and was put aside",
    "foreign": "its checkpoint was in a format that this version or this model does not use",
    "missing": "a file of its checkpoint was gone",
    "unreadable": "the disk or the index did not answer",
    "failed": "the engine had failed while it restored its checkpoint, which is whole",
    "ids": "its checkpoint held the state of other tokens and was put aside",
    "unsupported": "states of this model cannot be restored",
    "cancelled before it began": "the question was cancelled before anything was read",
}
_NOT_PERSISTED = "not persisted: "


@dataclass(frozen=True, slots=True)
class _Model:
    """What is known of the configured model without loading it."""

    fingerprint: bytes | None
    codec: Codec | None


def sentence(reason: str | None) -> str:
    """A reason of ``usage`` as a clause that a user understands."""
    if reason is None:
        return "no reason was recorded"
    if reason.startswith(_NOT_PERSISTED):
        return f"states of this model are not stored ({reason.removeprefix(_NOT_PERSISTED)})"
    return REASONS.get(reason, reason)


def run(given: argparse.Namespace) -> int:
    where = paths.find()
    settings = load(where.config_file)
    folder = where.checkpoints  # which may be missing: the last turn can be explained all the same
    with upkeep.trouble(folder):
        rows = survey.survey(OsFiles(), folder).rows
    with conversations(where) as log:
        found = conversation_of(log, given.root)
        assert log is not None, "there is a conversation"
        line, last = upkeep.past_and_present(log, found)[-1], log.turns(found, 1)
        entries = log.entries(found)
        other = None
        if given.other is not None:
            other = upkeep.past_and_present(log, conversation_of(log, given.other))[-1]
        lines = upkeep.lines(log)
    model = _model(settings, where, entries)
    claims = upkeep.claims(rows, [line])
    fingerprint = _fingerprint(model, rows, claims)
    claim = next((claim for claim in claims if claim.fingerprint == fingerprint), None)
    apart: dict[str, Any] | None = None
    about: dict[str, Any] | None = None
    if given.against is not None:
        from qmlx_lsp.cli import cache_against  # which loads what renders templates

        against = cache_against.compare(
            given.against, generate=given.generate, settings=settings, where=where, conversation=found,
            entries=entries, log=line.log,
        )  # fmt: skip
        positions = claim.positions if claim is not None else []
        about = against.about | {"restorable": max((p for p in positions if p <= against.about["same"]), default=0)}
        if against.parted is not None:
            apart = _parting(against.parted, None, model) | against.place
    elif other is not None:
        parted = parting.part(line.log, other.log)
        apart = None if parted is None else _parting(parted, other.root, model)
    else:
        mine = [row for row in rows if row.fingerprint == fingerprint]
        stored = parting.part_from_stored(line.log, mine, lambda row: _ids(folder, row))
        if stored is not None:
            parted, end = stored
            owners = upkeep.holders(upkeep.claims(mine, lines)).get(end.id)
            apart = _parting(parted, min(owners) if owners else None, model)
    shown = {
        "root": found.root,
        "epoch": found.epoch,
        "tokens": len(line.log),
        "turn": _turn(last[0]) if last else None,
        "fingerprint": fingerprint.hex() if fingerprint else None,
        "configured": fingerprint is not None and fingerprint == model.fingerprint,
        "restorable": claim.positions if claim is not None else [],
        "parts": apart,
    }
    if about is not None:
        shown["against"] = about
    if given.json:
        json_lines([shown])
    else:
        _show(shown, compared=given.other)
    return 0


def _ids(folder: Path, row: Row) -> tuple[int, ...]:
    """A segment's ids; none where it is damaged, or gone since it was listed."""
    try:
        return survey.stored_ids(OsFiles(), folder, row)
    except FileRejected:
        return ()


def _fingerprint(model: _Model, rows: list[Row], claims: list[upkeep.Claim]) -> bytes | None:
    """The configured model's if it has anything stored, else the one that reaches furthest, else the last used."""
    if any(row.fingerprint == model.fingerprint for row in rows):
        return model.fingerprint
    if claims:
        return max(claims, key=lambda claim: (max(claim.positions, default=0), len(claim.rows))).fingerprint
    return max(rows, key=lambda row: row.last_used).fingerprint if rows else None


def _turn(turn: TurnRecord) -> dict[str, Any]:
    reason = turn.usage.get("reason")
    why = sentence(str(reason)) if reason is not None else None
    return {"turn": turn.turn, "finish": turn.finish.value, "usage": turn.usage, "why": why}


# --- the model ------------------------------------------------------------------------------------------------------


def _model(settings: Settings, where: paths.Paths, entries: list[Entry]) -> _Model:
    """Fingerprint and tokenizer of the configured model, as far as its folder has them."""
    folder = model_text.folder(settings.model.name, where)
    if folder is None:
        return _Model(None, None)
    from qmlx_lsp.engine.mlx.fingerprint import fingerprint

    digest: bytes | None = None
    codec: Codec | None = None
    try:
        codec = model_text.codec(settings.model.name, folder)
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        adapter = settings.model.adapter_folder
        digest = fingerprint(folder, config, kv_bits=settings.model.kv_bits, adapter_folder=adapter)
    except (OSError, ValueError, KeyError, TypeError, struct.error, QmlxError):
        pass  # a folder that is not whole: the model itself says so when it is loaded
    fits = codec is not None and bool(entries) and entries[0].text in codec.decode(entries[0].ids)
    return _Model(digest, codec if fits else None)


# --- parting --------------------------------------------------------------------------------------------------------


def _parting(parted: Parting, root: str | None, model: _Model) -> dict[str, Any]:
    """``root``: whose the other chain is, if it is a conversation's."""
    shown: dict[str, Any] = {"at": parted.at, "other_tokens": parted.length, "other_root": root}
    for name, ids in (("before", parted.before), ("here", parted.here), ("there", parted.there)):
        shown[name] = {"ids": ids, "text": model.codec.decode(ids) if model.codec is not None else None}
    return shown


# --- for people -----------------------------------------------------------------------------------------------------


def _show(shown: dict[str, Any], *, compared: str | None) -> None:
    print(f"{shown['root']}: {shown['tokens']:,} tokens")
    print(_last_turn(shown["turn"]))
    if shown["restorable"]:
        positions = ", ".join(f"{position:,}" for position in shown["restorable"][:8])
        more = f" and {len(shown['restorable']) - 8} more" if len(shown["restorable"]) > 8 else ""
        whose = "the configured model" if shown["configured"] else f"model {shown['fingerprint'][:8]}"
        print(f"Now restorable with {whose}, in tokens: {positions}{more}.")
    else:
        print("Nothing of it can be restored now.")
    apart, against = shown["parts"], shown.get("against")
    if against is not None:
        print(_heading(against))
        if apart is None:
            print(f"Nothing parts: {against['why']}.")
            return
    if apart is None:
        print(f"It does not part from {compared}." if compared else "No stored chain parts from it.")
        return
    other = against["file"] if against else apart["other_root"] or "a stored chain of no current conversation"
    print(f"It parts from {other} ({apart['other_tokens']:,} tokens) at token {apart['at']:,}:")
    if against is not None:
        print(_whereabouts(apart))
    for heading, name in (("both", "before"), ("this one", "here"), ("the other", "there")):
        text, ids = apart[name]["text"], apart[name]["ids"]
        print(f"  {heading:9} {json.dumps(text, ensure_ascii=False) if text is not None else ids}")
    if apart["before"]["text"] is None:
        print("  (ids, for there is no tokenizer of this conversation's model here)")
    if against is not None:
        print(f"Why: {against['why']}.")


def _last_turn(turn: dict[str, Any] | None) -> str:
    if turn is None:
        return "It has not been answered yet."
    usage = turn["usage"]
    if not usage:
        return "The last turn has not ended."
    new = f"{usage['prefilled']:,} tokens were read"
    why = turn["why"] or sentence(None)
    if usage["plan"] == "live":
        return f"The last turn was live: {usage['live']:,} tokens were in memory, {new}."
    if usage["plan"] == "restore":
        took = f"{size(usage['restore_bytes'])} in {usage['restore_ms']:.0f} ms"
        return f"The last turn was restored: {usage['restored']:,} tokens from disk ({took}), {new}; not live: {why}."
    return f"The last turn was cold: {new}; {why}."


def _heading(about: dict[str, Any]) -> str:
    """The prompt in one line."""
    of = f" in {about['messages']:,} messages" if about["messages"] is not None else ""
    same = f"the first {about['same']:,} are the conversation's, {about['restorable']:,} of them on the disk"
    return f"{about['file']} has {about['tokens']:,} tokens{of}; {same}."


def _whereabouts(place: dict[str, Any]) -> str:
    """In which entry and which message the two part."""
    entry, message = place["entry"], place["message"]
    words = " ".join(entry["text"].split())
    of = f" ({entry['path']})" if entry["path"] is not None else f" ({words!r})" if words else ""
    said = f", in message {message['message'] + 1} ({message['role']})" if message is not None else ""
    return f"  in entry {entry['entry']}, {entry['kind']}{of}{said}"
