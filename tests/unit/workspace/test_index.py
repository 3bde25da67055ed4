"""The index of paths: what it holds, what a look changes, what may have become of a file that is gone."""

import pytest

from qmlx_lsp.workspace import index
from qmlx_lsp.workspace.changes import Changes, in_flight
from qmlx_lsp.workspace.index import Index, Seen, outermost


def changes(added="", changed="", removed=""):
    return Changes(frozenset(added.split()), frozenset(changed.split()), frozenset(removed.split()))


def seen(n, inode=None):
    return Seen(n, 1_000 + n, n if inode is None else inode)


def filled(**folders):
    """``filled(src={"a.py": 1})``; the root is ``_``."""
    made = Index()
    for folder, files in folders.items():
        made.update("" if folder == "_" else folder, {name: seen(n).pack() for name, n in files.items()})
    return made


def test_a_look_says_what_is_new_what_is_another_and_what_is_gone():
    made = filled(_={"a": 1, "b": 2, "c": 3})
    assert made.update("", {"a": seen(1).pack(), "b": seen(9).pack(), "d": seen(4).pack()}) == changes("d", "b", "c")
    assert sorted(made.paths()) == ["a", "b", "d"]
    assert len(made) == 3
    assert made.seen("b") == seen(9)
    assert made.seen("c") is None
    assert made.last_seen("c") == seen(3)
    assert made.update("", {"a": seen(1).pack(), "b": seen(9).pack(), "d": seen(4).pack()}) == changes()


@pytest.mark.parametrize("other", [Seen(2, 1, 1), Seen(1, 2, 1), Seen(1, 1, 2)])
def test_size_time_and_number_tell_a_file_from_what_it_was(other):
    made = Index()
    made.put("a", Seen(1, 1, 1))
    assert made.put("a", Seen(1, 1, 1)) == changes()
    assert made.put("a", other) == changes(changed="a")


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (Seen(0, -5, 7), Seen(0, -5, 7)),
        (Seen(1 << 70, 1 << 70, 1 << 63), Seen((1 << 64) - 1, (1 << 63) - 1, 1 << 63)),
        (Seen(3, -(1 << 70), (1 << 64) + 9), Seen(3, -((1 << 63) - 1), 9)),
    ],
)
def test_any_clock_and_any_number_is_kept(given, kept):
    assert len(given.pack()) == 24
    assert Seen.unpack(given.pack()) == kept


def test_folders_that_are_not_found_any_more_go_with_their_files():
    made = filled(_={"a": 1}, src={"b": 2}, **{"src/deep": {"c": 3}, "srcs": {"d": 4}})
    assert made.keep("src", {"src"}) == changes(removed="src/deep/c")
    assert made.keep("", {"", "srcs"}) == changes(removed="src/b")
    assert (sorted(made.paths()), sorted(made.folders()), len(made)) == (["a", "srcs/d"], ["", "srcs"], 2)


def test_discarding_a_path_takes_the_file_or_all_that_lies_below():
    made = filled(_={"a": 1}, src={"b": 2}, **{"src/deep": {"c": 3}})
    assert made.discard("src") == changes(removed="src/b src/deep/c")
    assert made.discard("a") == changes(removed="a")
    assert made.discard("none/of/it") == changes()
    assert len(made) == 0
    assert "" not in made


def test_paths_below_a_folder():
    made = filled(_={"a": 1}, src={"b": 2}, **{"src/deep": {"c": 3}, "srcs": {"d": 4}})
    assert sorted(made.paths("src")) == ["src/b", "src/deep/c"]
    assert "src/deep/c" in made
    assert "src/deep" not in made
    assert made.has_folder("src/deep")


def test_filling_is_updating_without_news():
    made = Index()
    made.fill("src", {"a": seen(1).pack(), "b": seen(2).pack()})
    made.fill("src", {"a": seen(1).pack()})
    assert (len(made), made.paths(), made.last_seen("src/b")) == (1, ["src/a"], None)


def test_what_was_gone_is_forgotten_in_its_order(monkeypatch):
    monkeypatch.setattr(index, "GONE_MAX", 2)
    made = filled(_={"a": 1, "b": 2, "c": 3})
    for name in ("a", "b", "c"):
        made.discard(name)
    assert [made.last_seen(name) for name in ("a", "b", "c")] == [None, seen(2), seen(3)]


def test_equal_names_are_kept_once_and_the_table_of_them_is_bounded(monkeypatch):
    monkeypatch.setattr(index, "NAMES_MAX", 8)
    made = Index()
    for n in range(5):
        made.fill(f"d{n}", {"".join(["in", "it.py"]): seen(n).pack()})
    names = {id(path) for folder in made._folders.values() for path in folder}
    assert len(names) <= 2
    assert len(made._names) <= 8


@pytest.mark.parametrize(
    ("folders", "found"),
    [
        (["a/b", "a", "a/b/c", "b"], ["a", "b"]),
        (["a-b", "a", "a/x"], ["a-b", "a"]),
        (["", "a", "b/c"], [""]),
        ([], []),
    ],
)
def test_outermost(folders, found):
    assert sorted(outermost(folders)) == sorted(found)


@pytest.mark.parametrize(
    "name",
    [
        "a.py~", "4913", ".a.py.swp", ".a.swo", ".a.swx", "a.py.tmp", "a.tmp.18276", "a.py.tmp-3f9c", "#a.py#",
        ".#a.py",
        ".goutputstream-AB12CD", "x.iso.crdownload", "x.part", "a.vsctmp", ".nfs0000a1", "._a.py", "a.py___jb_tmp___",
        "~$report.doc", ".DS_Store", "a\n.tmp",
    ],
)  # fmt: skip
def test_saves_on_their_way_are_known_by_name(name):
    assert in_flight(name)


@pytest.mark.parametrize(
    "name",
    [
        "a.py", "49130", "~", "tmp", "tmp.py", "a.tmpl", "index.tmp.html", "Cargo.lock", "swap.swift", "a.swf",
        "part.py",        "_.py", "#", "#notes.md", "a.parts", ".gitignore", "a~b", "temp.c",
    ],
)  # fmt: skip
def test_ordinary_names_are_not(name):
    assert not in_flight(name)
