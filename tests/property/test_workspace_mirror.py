"""Random programs of two clients against a model that keeps plain lists of what each has done."""

from urllib.parse import quote

from hypothesis import given, settings
from hypothesis import strategies as st

from qmlx_lsp.workspace.document import Change
from qmlx_lsp.workspace.mirror import Mirror, canonical_uri, path_to_uri, uri_to_path
from qmlx_lsp.workspace.positions import Encoding

clients = st.sampled_from(["one", "two"])
# Two spellings of one document, and another document.
uris = st.sampled_from(["file:///p/a%20b", "file:///p/%61 b", "file:///p/a%2520b"])
words = st.sampled_from(["", "x", "yy", "zzz"])
versions = st.none() | st.integers(1, 6)
changes = st.lists(st.tuples(words, st.booleans()), max_size=3)
steps = st.one_of(
    st.tuples(st.just("open"), clients, uris, versions, words),
    st.tuples(st.just("change"), clients, uris, versions, changes),
    st.tuples(st.just("close"), clients, uris),
    st.tuples(st.just("touch"), clients, uris),
    st.tuples(st.just("drop"), clients),
)
KEYS = {"file:///p/a%20b": "a b", "file:///p/%61 b": "a b", "file:///p/a%2520b": "a%20b"}


class Model:
    """Per client and file name a dict; the order of use is a list."""

    def __init__(self):
        self.held = {}
        self.order = []
        self.now = 0

    def used(self, name):
        self.order = [name, *(other for other in self.order if other != name)]

    def open(self, client, name, version, text):
        self.used(name)
        before = self.held.get((client, name))
        early = before and not before["opened"]
        older = early and None not in (version, before["version"]) and version < before["version"]
        if older and before["text"] is not None:
            before["opened"] = self.now
        else:
            state = {"version": version, "text": text, "synced": not older, "opened": self.now, "changed": 0}
            self.held[client, name] = state

    def change(self, client, name, version, edits):
        self.used(name)
        new = {"version": None, "text": None, "synced": False, "opened": 0, "changed": 0}
        state = self.held.setdefault((client, name), new)
        if None not in (version, state["version"]) and version <= state["version"]:
            state["synced"] = state["synced"] and not edits
            return
        state["version"] = version
        for text, whole in edits:
            if whole:
                state.update(text=text, synced=True, changed=self.now)
            elif state["text"] is not None:
                state.update(text=text + state["text"], changed=self.now)

    def close(self, client, name):
        self.held.pop((client, name), None)

    def document(self, name):
        states = [state for (_, other), state in self.held.items() if other == name]
        if not states:
            return None
        best = max(states, key=lambda s: (s["synced"], s["text"] is not None, s["changed"], s["opened"]))
        return best["text"] or "", best["version"], best["synced"]

    def open_names(self):
        return [name for name in self.order if self.document(name)]


@given(st.lists(steps, max_size=25))
@settings(deadline=None, max_examples=120)
def test_mirror_agrees_with_the_model_after_every_step(program):
    mirror, model = Mirror(), Model()
    for verb, client, *rest in program:
        model.now += 1
        name = KEYS[rest[0]] if rest else ""
        if verb == "open":
            mirror.open(client, rest[0], "python", rest[1], rest[2])
            model.open(client, name, rest[1], rest[2])
        elif verb == "change":
            sent = [Change(text, None if whole else ((0, 0), (0, 0))) for text, whole in rest[2]]
            mirror.change(client, rest[0], rest[1], sent, Encoding.UTF16)
            model.change(client, name, rest[1], rest[2])
        elif verb == "close":
            mirror.close(client, rest[0])
            model.close(client, name)
        elif verb == "touch":
            mirror.touch(client, rest[0])
            if (client, name) in model.held:
                model.used(name)
        else:
            mirror.drop_client(client)
            model.held = {key: state for key, state in model.held.items() if key[0] != client}
        for uri, other in KEYS.items():
            document = mirror.document(uri)
            assert (document and (document.text, document.version, document.synced)) == model.document(other)
        assert [uri_to_path(uri) for uri in mirror.open_uris()] == [f"/p/{name}" for name in model.open_names()]


@given(st.text(max_size=30), st.sampled_from(["", "file:", "file://", "file:///", "untitled:", "C:"]))
@settings(deadline=None, max_examples=80)
def test_key_of_a_key_is_itself_for_any_text(text, start):
    for uri in (start + text, start + quote(text, errors="replace")):
        assert canonical_uri(canonical_uri(uri)) == canonical_uri(uri)


@given(st.lists(st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1), min_size=1))
@settings(deadline=None, max_examples=50)
def test_any_path_survives_the_way_to_a_uri_and_back(names):
    path = "/" + "/".join(name for name in names if name != ".")
    assert uri_to_path(path_to_uri(path)) == (path.rstrip("/") or "/")
