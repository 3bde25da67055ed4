"""Changes of any number of looks add up to comparing the first state with the last; summaries stay within limits."""

import itertools
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from qmlx_lsp.workspace.changes import Changes
from qmlx_lsp.workspace.ignore import UNTOLD_FOLDERS, Ignore
from qmlx_lsp.workspace.index import Index, Seen, merged
from qmlx_lsp.workspace.summary import CHARS_MIN, LINES_MIN, summary

quick = settings(deadline=None, max_examples=100)
states = st.dictionaries(st.sampled_from(["a", "b", "c", "d/e", "d/f", "d/g/h"]), st.integers(0, 3), max_size=6)
parts = st.sampled_from(["a", "b", "src", "x" * 90, "é", "\n", "z.py", ".."])
paths = st.lists(parts, min_size=1, max_size=5).map("/".join)


def compared(before, after):
    """What a comparison of two states says, by its definition."""
    return Changes(
        frozenset(after.keys() - before.keys()),
        frozenset(path for path in before.keys() & after.keys() if before[path] != after[path]),
        frozenset(before.keys() - after.keys()),
    )


@quick
@given(st.lists(states, min_size=1, max_size=6))
def test_merged_changes_are_the_net_effect(looks):
    net = Changes()
    for before, after in itertools.pairwise(looks):
        net = net.merge(compared(before, after))
    expected = compared(looks[0], looks[-1])
    assert net.added == expected.added
    assert net.removed == expected.removed
    assert net.changed >= expected.changed
    stayed = {path for path in looks[0] if path in looks[-1]}
    touched = {path for path in stayed if any(look.get(path) != looks[0][path] for look in looks)}
    assert net.changed == touched
    assert len(net) == len(net.added | net.changed | net.removed)


@quick
@given(st.lists(states, min_size=1, max_size=4), st.booleans())
def test_an_index_follows_the_disk_whether_folders_or_paths_are_looked_at(looks, whole):
    index, before = Index(), {}
    for now in looks:
        folders = {folder for path in now for folder in _above(path)} | {""}
        if whole:
            found = [index.update(folder, _files(now, folder)) for folder in sorted(folders)]
            news = merged([*found, index.keep("", folders)])
        else:
            news = Changes()
            for path in sorted(before.keys() | now.keys()):
                seen = None if path not in now else Seen(now[path], now[path], 1)
                news = news.merge(index.discard(path) if seen is None else index.put(path, seen))
        assert news == compared(before, now)
        assert {path: index.seen(path) for path in index.paths()} == {path: Seen(n, n, 1) for path, n in now.items()}
        assert len(index) == len(now)
        before = now


def _above(path):
    cut = path.split("/")[:-1]
    return ["/".join(cut[: n + 1]) for n in range(len(cut))]


def _files(now, folder):
    named = {path.rpartition("/")[::2]: n for path, n in now.items()}
    return {name: Seen(n, n, 1).pack() for (where, name), n in named.items() if where == folder}


@quick
@given(
    st.lists(paths, max_size=60, unique=True), st.integers(LINES_MIN, 12), st.integers(CHARS_MIN, 900),
    st.sampled_from(["", "The branch is now main."]),
)  # fmt: skip
def test_a_summary_counts_every_file_once_and_stays_within_its_limits(names, lines, chars, because):
    files = [name for name in names if not any(other.startswith(f"{name}/") for other in names)]
    changes = Changes(frozenset(files[::3]), frozenset(files[1::3]), frozenset(files[2::3]))
    text = summary(changes, lines, chars, because)
    assert text.count("\n") <= lines
    assert len(text) <= chars
    assert text.endswith("\n")
    assert not text.endswith("\n\n")
    assert not text[0].isspace()
    counted = re.findall(r"^- .*: (?:([\d,]+) files?|new|changed|deleted)$", text, re.MULTILINE)
    assert sum(int(count.replace(",", "")) if count else 1 for count in counted) == len(files)
    assert summary(Changes(changes.added, changes.changed, changes.removed), lines, chars, because) == text


lines = st.lists(
    st.sampled_from(
        ["*.log", "!keep.log", "/top", "b/", "!b/", "a/b", "**/c", "a/**", "*", "!*/", "!*.py", "# x", "["]
    ),
    max_size=4,
).map("\n".join)
names_ = st.sampled_from(
    ["a", "b", "c", "top", "x.log", "keep.log", "m.py", ".env", "id_rsa", "node_modules", ".git"]
)


@quick
@given(
    st.dictionaries(
        st.sampled_from([
            "/r/.gitignore", "/r/a/.gitignore", "/r/a/b/.gitignore", "/r/.qmlxignore", "/r/a/.qmlxignore",
            "/r/.git/info/exclude", "/.gitignore", "/.git/info/exclude", "/r/a/c/.gitignore",
        ]),
        lines,
    ),
    st.sampled_from([None, "/r/.git", "/.git"]), lines,
    st.lists(names_, min_size=1, max_size=4), st.booleans(),
)  # fmt: skip
def test_a_folder_at_a_time_the_rules_say_what_they_say_of_a_path(files, repository, extra, parts, is_folder):
    if repository:
        files = {**files, repository: "gitdir: x"}
    rules = Ignore("/r", files.get, extra.split("\n"))
    *above, name = parts
    for depth in range(len(above)):
        if rules.excluded("/".join(above[: depth + 1]) + "/"):
            return
    folder = "/".join(above)
    here = f"/r/{folder}/" if folder else "/r/"
    held = {path.removeprefix(here) for path in files if path.startswith(here)}
    quickly = Ignore("/r", files.get, extra.split("\n")).inside(folder, held).reason(name, folder=is_folder)
    assert quickly == rules.excluded("/".join(parts) + ("/" if is_folder else ""))
    assert quickly == "folder" or not (is_folder and name in UNTOLD_FOLDERS)
