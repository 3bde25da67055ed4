"""Open documents of several clients: out-of-order messages, versions, spellings, who is told."""

from qmlx_lsp.workspace.document import Change, Document
from qmlx_lsp.workspace.mirror import Mirror
from qmlx_lsp.workspace.positions import Encoding

U16 = Encoding.UTF16
U, W = "file:///p/u.py", "file:///p/w.py"


def full(text):
    return [Change(text)]


def insert(line, column, text):
    return [Change(text, ((line, column), (line, column)))]


def test_opened_document_is_the_clients_text_and_unknown_one_is_none():
    mirror = Mirror()
    mirror.open("a", U, "python", 1, "x\r\n\ud800")
    assert mirror.document(U) == Document(U, "python", 1, "x\r\n\ufffd")
    assert mirror.document(W) is None


def test_full_change_before_open_is_kept_and_a_late_older_open_does_not_win():
    mirror = Mirror()
    mirror.change("a", U, 2, full("(ns foo)\n"), U16)
    assert mirror.document(U) == Document(U, "", 2, "(ns foo)\n")
    mirror.open("a", U, "clojure", 1, "")
    assert mirror.document(U) == Document(U, "clojure", 2, "(ns foo)\n")
    mirror.change("a", U, 3, insert(0, 0, ";"), U16)
    assert mirror.document(U) == Document(U, "clojure", 3, ";(ns foo)\n")


def test_open_of_the_same_or_a_newer_version_wins_over_an_early_change():
    for version in (2, 3):
        mirror = Mirror()
        mirror.change("a", U, 2, full("early"), U16)
        mirror.open("a", U, "python", version, "opened")
        assert mirror.document(U) == Document(U, "python", version, "opened")


def test_ranged_change_before_open_is_remembered_as_missed():
    mirror = Mirror()
    mirror.change("a", W, 4, insert(0, 0, "x"), U16)
    assert mirror.document(W) == Document(W, "", 4, "", synced=False)
    mirror.change("a", W, 5, insert(0, 0, "y"), U16)
    assert mirror.document(W) == Document(W, "", 5, "", synced=False)
    mirror.open("a", W, "python", 3, "late")
    assert mirror.document(W) == Document(W, "python", 3, "late", synced=False)
    mirror.change("a", W, 6, full("whole"), U16)
    assert mirror.document(W) == Document(W, "python", 6, "whole")


def test_ranges_before_the_first_full_text_are_skipped_and_those_after_it_apply():
    mirror = Mirror()
    mirror.change("a", W, 4, [*insert(0, 0, "x"), *full("ab"), *insert(0, 1, "-")], U16)
    assert mirror.document(W) == Document(W, "", 4, "a-b")


def test_close_twice_and_close_of_an_unknown_document_do_nothing():
    mirror = Mirror()
    mirror.close("a", W)
    mirror.change("a", W, 4, insert(0, 0, "x"), U16)
    mirror.close("a", W)
    mirror.close("a", W)
    assert mirror.document(W) is None
    assert mirror.open_uris() == []


def test_version_that_does_not_increase_is_dropped_and_marks_the_document():
    for version in (5, 3):
        mirror = Mirror()
        mirror.open("a", U, "python", 5, "abc")
        mirror.change("a", U, version, insert(0, 3, "Z"), U16)
        assert mirror.document(U) == Document(U, "python", 5, "abc", synced=False)
        mirror.change("a", U, 4, full("old"), U16)
        assert mirror.document(U) == Document(U, "python", 5, "abc", synced=False)
        mirror.change("a", U, 6, insert(0, 3, "d"), U16)
        assert mirror.document(U) == Document(U, "python", 6, "abcd", synced=False)
        mirror.change("a", U, 7, full("new"), U16)
        assert mirror.document(U) == Document(U, "python", 7, "new")


def test_open_after_a_dropped_change_makes_the_document_synced():
    mirror = Mirror()
    mirror.open("a", U, "python", 5, "abc")
    mirror.change("a", U, 5, full("x"), U16)
    mirror.open("a", U, "python", 1, "again")
    assert mirror.document(U) == Document(U, "python", 1, "again")


def test_change_that_was_not_understood_marks_the_document_until_a_full_text():
    mirror = Mirror()
    mirror.open("a", U, "python", 5, "abc")
    mirror.missed("a", U, 6)
    assert mirror.document(U) == Document(U, "python", 6, "abc", synced=False)
    mirror.missed("a", U, None)
    mirror.missed("a", U, 2)
    assert mirror.document(U) == Document(U, "python", 6, "abc", synced=False)
    mirror.change("a", U, 6, full("old"), U16)
    assert mirror.document(U) == Document(U, "python", 6, "abc", synced=False)
    mirror.change("a", U, 7, full("new"), U16)
    assert mirror.document(U) == Document(U, "python", 7, "new")
    mirror.missed("a", W, 3)
    assert mirror.document(W) == Document(W, "", 3, "", synced=False)
    mirror.open("a", W, "python", 3, "w")
    assert mirror.document(W) == Document(W, "python", 3, "w")


def test_copy_is_the_clients_own_whatever_the_others_have():
    mirror = Mirror()
    mirror.open("a", U, "python", 1, "mine")
    mirror.change("b", U, 2, full("theirs"), U16)
    assert mirror.copy("a", U) == Document(U, "python", 1, "mine")
    assert mirror.copy("c", U) is None
    assert mirror.document(U) == Document(U, "", 2, "theirs")


def test_empty_change_list_loses_nothing_whatever_its_version():
    mirror = Mirror()
    mirror.open("a", U, "python", 5, "abc")
    mirror.change("a", U, 5, [], U16)
    assert mirror.document(U) == Document(U, "python", 5, "abc")
    mirror.change("a", U, 6, [], U16)
    assert mirror.document(U) == Document(U, "python", 6, "abc")


def test_client_without_versions_is_believed():
    mirror = Mirror()
    mirror.open("a", U, "python", None, "abc")
    mirror.change("a", U, None, insert(0, 0, "x"), U16)
    assert mirror.document(U) == Document(U, "python", None, "xabc")


def test_open_twice_replaces():
    mirror = Mirror()
    mirror.open("a", U, "python", 7, "one")
    mirror.open("a", U, "python", 1, "two")
    assert mirror.document(U) == Document(U, "python", 1, "two")


def test_latest_change_of_two_clients_wins_and_closing_gives_the_other_back():
    mirror = Mirror()
    mirror.open("a", U, "python", 1, "disk")
    mirror.open("b", U, "python", 1, "disk")
    mirror.change("a", U, 2, full("from a"), U16)
    mirror.change("b", U, 2, full("from b"), U16)
    assert mirror.document(U).text == "from b"
    mirror.change("a", U, 3, insert(0, 6, "!"), U16)
    assert mirror.document(U).text == "from a!"
    mirror.close("a", U)
    assert mirror.document(U).text == "from b"
    mirror.drop_client("b")
    assert mirror.document(U) is None


def test_second_editor_opening_the_file_does_not_hide_what_the_first_has_typed():
    mirror = Mirror()
    mirror.open("a", U, "python", 1, "disk")
    mirror.change("a", U, 2, full("typed"), U16)
    mirror.open("b", U, "python", 1, "disk")
    assert mirror.document(U).text == "typed"


def test_doubtful_copy_never_hides_a_trustworthy_one():
    mirror = Mirror()
    mirror.open("a", U, "python", 1, "good")
    mirror.change("b", U, 9, insert(0, 0, "x"), U16)
    assert mirror.document(U) == Document(U, "python", 1, "good")


def test_spellings_meet_in_one_document_that_keeps_the_clients_own():
    mirror = Mirror()
    mirror.open("a", "file:///c%3A/p/x.py", "python", 1, "one")
    mirror.change("a", "file:///C:/p/x.py", 2, full("two"), U16)
    assert mirror.document("file:///c:/p/x.py") == Document("file:///c%3A/p/x.py", "python", 2, "two")
    assert mirror.open_uris() == ["file:///c%3A/p/x.py"]
    mirror.close("a", "file:///c:/p/x.py")
    assert mirror.open_uris() == []


def test_names_that_decode_to_each_other_stay_two_documents():
    mirror = Mirror()
    mirror.open("a", "file:///tmp/a%20b.py", "python", 1, "blank")
    mirror.open("a", "file:///tmp/a%2520b.py", "python", 1, "percent")
    assert [mirror.document(uri).text for uri in mirror.open_uris()] == ["percent", "blank"]


def test_open_uris_come_in_order_of_most_recent_use():
    mirror = Mirror()
    for uri in ("untitled:1", "untitled:2", "untitled:3"):
        mirror.open("a", uri, "python", 1, "")
    mirror.change("a", "untitled:1", 2, full("x"), U16)
    mirror.touch("a", "untitled:2")
    mirror.touch("b", "untitled:3")
    mirror.touch("a", "untitled:4")
    assert mirror.open_uris() == ["untitled:2", "untitled:1", "untitled:3"]


def test_nothing_is_kept_of_closed_documents():
    mirror = Mirror()
    for number in range(50):
        mirror.open("a", f"untitled:{number}", "python", 1, "text")
        mirror.close("a", f"untitled:{number}")
    assert not mirror._copies
    assert not mirror._used
