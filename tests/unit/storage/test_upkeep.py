"""Upkeep by hand: whose files these are, what is damaged, what can go, what forgetting leaves."""

from __future__ import annotations

import ast
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from qmlx_lsp.cli.cache_explain import REASONS, sentence
from qmlx_lsp.storage import parting, survey, upkeep
from qmlx_lsp.storage.files import OsFiles
from qmlx_lsp.storage.row import Kind, Row
from qmlx_lsp.transcript.tokens import TokenLog
from tests.support.toy_state import Toy, branch, find, log_of, open_store, restore, save

ROWS, HYBRID = Toy("rows"), Toy("hybrid", hybrid=True)
FS = OsFiles()
LOG = log_of(60)
OTHER = branch(LOG, 20, range(100, 150))  # another conversation with the same first 20 tokens
QUOTA = 1 << 30


def line(log: TokenLog, root: str = "/a") -> upkeep.Line:
    return upkeep.Line(root, 0, log)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """LOG at 20, 40 and 60, OTHER at 20 and 70."""
    store = open_store(tmp_path / "store")
    for end in (20, 40, 60):
        save(store, HYBRID, LOG, end)
    save(store, HYBRID, OTHER)
    store.close()
    return tmp_path / "store"


def rows_of(folder: Path) -> list[Row]:
    return survey.survey(FS, folder).rows


def snap(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def spans(rows: list[Row]) -> list[tuple[str, int, int]]:
    return sorted((row.kind.value, row.a, row.b) for row in rows)


# --- claims ---------------------------------------------------------------------------------------------------------


def test_claims_hold_whole_chains_and_share_what_is_shared(folder: Path) -> None:
    rows = rows_of(folder)
    mine, theirs = upkeep.claims(rows, [line(LOG), line(OTHER, "/b")])
    assert spans(mine.rows) == [
        ("segment", 0, 20), ("segment", 20, 40), ("segment", 40, 60),
        ("snapshot", 20, 20), ("snapshot", 40, 40), ("snapshot", 60, 60),
    ]  # fmt: skip
    assert (mine.positions, theirs.positions) == ([60, 40, 20], [70, 20])
    shared = [row for row in rows if len(upkeep.holders([mine, theirs])[row.id]) == 2]
    assert spans(shared) == [("segment", 0, 20), ("snapshot", 20, 20)]
    assert upkeep.claims(rows, [line(log_of(60, seed=1))]) == []
    (shorter,) = upkeep.claims(rows, [line(log_of(45))])
    assert shorter.positions == [40, 20]


def test_a_model_of_rows_is_restorable_at_every_joint(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for end in (20, 40, 60):
        save(store, ROWS, LOG, end)
    (claim,) = upkeep.claims(rows_of(tmp_path), [line(LOG)])
    assert claim.positions == [found.position for found in find(store, ROWS, LOG)] == [60, 40, 20]
    store.close()


@pytest.mark.parametrize("harm", [None, b"no database", b""])
def test_the_survey_needs_no_index_and_changes_nothing(folder: Path, harm: bytes | None) -> None:
    wanted = spans(rows_of(folder))
    (folder / "index.db").unlink()
    if harm is not None:
        (folder / "index.db").write_bytes(harm)
    before = snap(folder)
    found = survey.survey(FS, folder)
    assert spans(found.rows) == wanted
    assert (found.index == "missing") is (harm is None)
    assert len(found.unlisted) == 8
    assert snap(folder) == before


def test_usage_is_what_lies_on_the_disk(folder: Path) -> None:
    (folder / "segments" / ".tmp-1-00000000-00000000").write_bytes(b"12345")
    (folder / "note").write_bytes(b"123")
    found = survey.usage(folder)
    walked = [Path(where) / name for where, _, names in os.walk(folder) for name in names]
    assert sum(some.bytes for some in found.values()) == sum(path.stat().st_size for path in walked)
    assert sum(some.files for some in found.values()) == len(walked)
    assert (found["segments"].files, found["snapshots"].files) == (4, 4)
    assert (found["temporary"], found["other"]) == ((1, 5), (1, 3))


# --- verify ---------------------------------------------------------------------------------------------------------


def _flip(at: int) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[at] ^= 1
        path.write_bytes(data)

    return change


HARM: dict[str, tuple[Callable[[Path], None], str]] = {
    "header": (_flip(40), "corrupt"),
    "payload": (_flip(16_384 + 37), "corrupt"),
    "last byte": (_flip(-1), "corrupt"),
    "cut": (lambda path: os.truncate(path, path.stat().st_size - 1), "truncated"),
    "empty": (lambda path: os.truncate(path, 0), "truncated"),
    "longer": (lambda path: path.write_bytes(path.read_bytes() + b"\0") and None, "corrupt"),
}


@pytest.mark.parametrize("kind", ["segments", "snapshots"])
@pytest.mark.parametrize(("harm", "reason"), HARM.values(), ids=HARM.keys())
def test_verify_finds_each_kind_of_damage_and_only_that(
    folder: Path, kind: str, harm: Callable[[Path], None], reason: str
) -> None:
    path = sorted((folder / kind).iterdir())[1]
    harm(path)
    before = snap(folder)
    found = survey.verify(FS, folder)
    assert [(error.name, error.reason) for error in found.damaged] == [(path.name, reason)]
    assert (found.index_usable, found.unlisted, found.fileless) == (True, [], [])
    assert snap(folder) == before
    with upkeep.opened(FS, folder, QUOTA) as catalog:
        assert upkeep.repair(catalog, FS, folder, found) == [path.name]
    assert (folder / "quarantine" / path.name).exists()
    again = survey.verify(FS, folder)
    assert (again.damaged, again.unlisted, again.fileless, again.index) == ([], [], [], "ok")


def test_a_whole_store_is_whole_and_progress_ends_at_the_end(folder: Path) -> None:
    seen: list[tuple[int, int]] = []
    found = survey.verify(FS, folder, lambda done, total: seen.append((done, total)))
    files = [p for name in ("segments", "snapshots") for p in (folder / name).iterdir()]
    assert found.read == (len(files), sum(p.stat().st_size for p in files))
    assert not found.damaged
    assert seen == sorted(seen)
    assert seen[-1] == (found.read.bytes, found.read.bytes)


def test_what_index_and_files_say_of_each_other(folder: Path, tmp_path: Path) -> None:
    gone, extra = sorted((folder / "snapshots").iterdir())[:2]
    shutil.move(gone, tmp_path / gone.name)
    found = survey.verify(FS, folder)
    assert (found.damaged, found.fileless, found.unlisted) == ([], [gone.name], [])
    with upkeep.opened(FS, folder, QUOTA) as catalog:  # the row goes …
        upkeep.repair(catalog, FS, folder, found)
    shutil.move(tmp_path / gone.name, gone)
    assert survey.verify(FS, folder).unlisted == [gone.name]  # … and the file is back
    assert extra.exists()


def test_a_file_that_was_made_whole_meanwhile_is_not_put_aside(folder: Path) -> None:
    path = min((folder / "segments").iterdir())
    whole = path.read_bytes()
    _flip(-1)(path)
    found = survey.verify(FS, folder)
    path.write_bytes(whole)
    with upkeep.opened(FS, folder, QUOTA) as catalog:
        assert upkeep.repair(catalog, FS, folder, found) == [path.name]
    assert path.exists()


# --- collecting -----------------------------------------------------------------------------------------------------


def _gc(
    folder: Path, quota: int = QUOTA, *, now: float = 10_000.0, lines: list[upkeep.Line] | None = None
) -> upkeep.Plan:
    by = None if lines is None else lambda: lines
    chosen = upkeep.look_for_room(FS, folder, quota, left_over=0, claimed_by=by, now=now)
    with upkeep.opened(FS, folder, quota) as catalog:
        done = upkeep.collect(catalog, chosen, lambda _done, _total: None)
    assert [row.id for row in done.rows] == [row.id for row in chosen.rows]
    return done


def test_what_can_match_stays(folder: Path) -> None:
    before = spans(rows_of(folder))
    assert _gc(folder).rows == []
    assert spans(rows_of(folder)) == before


def test_what_nothing_leads_to_goes(folder: Path) -> None:
    first = next(row for row in rows_of(folder) if (row.kind, row.a) == (Kind.SEGMENT, 20) and row.b == 40)
    (folder / "segments" / first.name).unlink()
    done = _gc(folder)
    assert spans(done.going[upkeep.UNREACHABLE]) == [("segment", 40, 60), ("snapshot", 40, 40), ("snapshot", 60, 60)]
    store = open_store(folder)
    assert restore(store, HYBRID, OTHER) == (70, 1)
    store.close()


def test_segments_without_a_snapshot_behind_go_unless_they_are_young(folder: Path) -> None:
    for row in rows_of(folder):
        if row.kind is Kind.SNAPSHOT and row.b in (40, 60):
            (folder / "snapshots" / row.name).unlink()
    young = _gc(folder, now=1_000.0 + upkeep.YOUNG_S / 2)  # the toy clock stands at 1,000
    assert (young.rows, spans(young.kept)) == ([], [("segment", 20, 40), ("segment", 40, 60)])
    done = _gc(folder, now=1_000.0 + upkeep.YOUNG_S)
    assert spans(done.going[upkeep.NO_SNAPSHOT]) == [("segment", 20, 40), ("segment", 40, 60)]
    assert spans(rows_of(folder)) == [
        ("segment", 0, 20), ("segment", 20, 70), ("snapshot", 20, 20), ("snapshot", 70, 70),
    ]  # fmt: skip


def test_unclaimed_goes_only_when_asked_and_not_what_is_held(folder: Path) -> None:
    store = open_store(folder)
    store.pin("me", find(store, HYBRID, OTHER)[0])
    assert _gc(folder, lines=[line(LOG)]).rows == []
    store.pin("me", None)
    done = _gc(folder, lines=[line(LOG)])
    assert spans(done.going[upkeep.UNCLAIMED]) == [("segment", 20, 70), ("snapshot", 70, 70)]
    assert restore(store, HYBRID, LOG) == (60, 1)
    store.close()


def test_beyond_the_quota(folder: Path) -> None:
    size = sum(row.size for row in rows_of(folder))
    quota = size * 2 // 3
    _gc(folder, quota)
    left = rows_of(folder)
    assert 0 < sum(row.size for row in left) <= quota
    assert upkeep.retention.hopeless(left)[0] == []


# --- forgetting -----------------------------------------------------------------------------------------------------


def test_forgetting_leaves_what_others_share(folder: Path) -> None:
    store = open_store(folder)
    store.pin("me", find(store, HYBRID, LOG)[0])  # whoever holds them
    rows = upkeep.forgotten(rows_of(folder), [line(LOG)], [line(OTHER, "/b")])
    assert spans(rows) == [
        ("segment", 20, 40), ("segment", 40, 60), ("snapshot", 40, 40), ("snapshot", 60, 60),
    ]  # fmt: skip
    with upkeep.opened(FS, folder, QUOTA) as catalog:
        assert upkeep.forget(catalog, rows, lambda _done, _total: None) == upkeep.amount(rows)
    assert restore(store, HYBRID, OTHER) == (70, 1)
    assert restore(store, HYBRID, LOG)[0] == 20
    store.close()


def test_forgetting_takes_what_hangs_on_it(folder: Path) -> None:
    rows = upkeep.forgotten(rows_of(folder), [line(LOG)], [])  # OTHER belongs to nobody, and loses its beginning
    assert len(rows) == len(rows_of(folder))


# --- parting --------------------------------------------------------------------------------------------------------


def test_where_two_logs_part() -> None:
    parted = parting.part(LOG, OTHER)
    assert parted is not None
    assert (parted.at, parted.before, parted.length) == (20, LOG.ids(0, 20), 70)
    assert (parted.here, parted.there) == (LOG.ids(20, 60), [*range(100, 140)])
    assert parting.part(LOG, log_of(30)) is None
    assert parting.part(LOG, LOG) is None


def test_where_a_stored_chain_parts(folder: Path) -> None:
    store = open_store(folder)
    longer = branch(OTHER, 70, range(7))
    save(store, HYBRID, longer)
    save(store, HYBRID, log_of(300, seed=3))  # long, and other from the first token on
    store.close()
    log = branch(OTHER, 65, [9] * 40)  # in the middle of a segment
    parted = parting.part_from_stored(log, rows_of(folder), lambda row: survey.stored_ids(FS, folder, row))
    assert parted is not None
    assert (parted[0].at, parted[0].length, parted[1].b) == (65, 77, 77)
    assert parted[0].there == [*range(145, 150), *range(7)]
    assert parted[0].before == log.ids(25, 65)
    whole = parting.part_from_stored(longer, rows_of(folder), lambda row: survey.stored_ids(FS, folder, row))
    assert whole is not None
    assert whole[0].at == 20  # LOG's chain


def test_every_reason_that_a_turn_may_give_has_a_sentence() -> None:
    package = Path(upkeep.__file__).parents[1]
    calls = {
        "FileRejected": 0,
        "CheckpointRejected": 0,
        "Miss": 0,
        "drop_live": 0,
        "settle": 2,
        "retire": 1,
        "expel": 1,
    }
    given: set[str] = set()
    for file in [*package.glob("s*/*.py"), *package.glob("engine/**/*.py")]:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                place = calls.get(name, 99)
                if place < len(node.args) and isinstance(node.args[place], ast.Constant):
                    given.add(str(node.args[place].value))
    assert len(given) >= 12
    assert given <= REASONS.keys()
    assert sentence("not persisted: X") == "states of this model are not stored (X)"
