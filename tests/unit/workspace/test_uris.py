"""One key per document, and the way between URIs and paths."""

import pytest

from qmlx_lsp.workspace.mirror import canonical_uri, path_to_uri, uri_to_path
from qmlx_lsp.workspace.uris import FOLDERS_MAX, NAME_BYTES_MAX, PATH_BYTES_MAX, is_path


@pytest.mark.parametrize(
    "group",
    [
        ["file:///c%3A/x", "file:///c:/x", "file:///C:/x", "file:///C%3a/x", "FILE:///c:/x"],
        ["file:///tmp/a%20b.py", "file:///tmp/a b.py", "file://localhost/tmp/a%20b.py", "file:/tmp/a%20b.py"],
        ["file:///tmp/a%2520b.py"],
        ["file:///tmp/%61.py", "file:///tmp/a.py", "file:///tmp//a.py", "file:///tmp/./a.py"],
        ["file:///tmp/caf%C3%A9", "file:///tmp/caf\u00e9"],
        ["file:///tmp/cafe%CC%81", "file:///tmp/cafe\u0301"],
        ["file:///tmp", "file:///tmp/"],
        ["file:///tmp/a%23b", "file:///tmp/a#b"],
        ["file:///tmp/%FF"],
        ["file://host/tmp/a.py"],
        ["untitled:Untitled-1", "untitled:Untitled%2D1"],
        ["untitled:untitled-1"],
        ["git:/p/a.py?ref=HEAD"],
        ["A%3Ab"],
        ["A:b"],
        [""],
    ],
)
def test_spellings_of_one_document_share_a_key_that_is_its_own_key(group):
    keys = {canonical_uri(uri) for uri in group}
    assert len(keys) == 1
    assert {canonical_uri(key) for key in keys} == keys


def test_different_documents_have_different_keys():
    uris = [
        "file:///tmp/a%20b.py", "file:///tmp/a%2520b.py", "file:///tmp/caf\u00e9", "file:///tmp/cafe\u0301",
        "file:///tmp/A", "file:///tmp/a", "untitled:a", "untitled:A", "file://host/tmp/a", "file:a", "A%3Ab", "A:b",
    ]  # fmt: skip
    assert len({canonical_uri(uri) for uri in uris}) == len(uris)


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///tmp/a%20b.py", "/tmp/a b.py"),
        ("file:///tmp/a%2520b.py", "/tmp/a%20b.py"),
        ("file://localhost/tmp/a", "/tmp/a"),
        ("file:///tmp/%FF", "/tmp/\udcff"),
        ("file:///C:/x", "/C:/x"),
        ("file://elsewhere/etc/passwd", None),
        ("file:relative", None),
        ("file:///a%00b", None),
        ("untitled:Untitled-1", None),
        ("git:/p/a.py", None),
        ("/tmp/a", None),
    ],
)
def test_only_local_file_uris_have_a_path(uri, path):
    assert uri_to_path(uri) == path


@pytest.mark.parametrize("path", ["/", "/a b", "/a%20b", "/é", "/e\u0301", "/\udcff", "/a#b?c;d", "/c:/x", "/~x/😋"])
def test_path_survives_the_way_to_a_uri_and_back(path):
    uri = path_to_uri(path)
    assert uri.isascii()
    assert uri_to_path(uri) == path
    assert canonical_uri(uri) == uri


@pytest.mark.parametrize("path", ["a/b", "", "/\ud800"])
def test_paths_that_cannot_be_are_refused(path):
    with pytest.raises(ValueError):
        path_to_uri(path)


def test_lone_surrogate_in_a_uri_does_not_raise():
    assert canonical_uri("file:///a\ud83d") == "file:///a%EF%BF%BD"


@pytest.mark.parametrize(
    ("path", "can"),
    [
        ("/a.py", True), ("", True), ("a b/\udcff.py", True), ("/\ud800", False), ("/a\0", False),
        ("/" + "a" * NAME_BYTES_MAX, True), ("/" + "a" * (NAME_BYTES_MAX + 1), False), ("é" * 600, False),
        ("/a" * FOLDERS_MAX, True), ("/a" * (FOLDERS_MAX + 1), False), (("/" + "a" * 900) * 5, False),
        ("x/" * (PATH_BYTES_MAX // 2), False),
    ],
)  # fmt: skip
def test_names_that_a_file_system_can_hold(path, can):
    assert is_path(path) == can
    if "\ud800" not in path:  # in a URI it is a character of its own
        assert (uri_to_path(f"file:///{path}") is not None) == can
