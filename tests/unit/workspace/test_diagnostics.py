"""Diagnostics as one bounded block."""

from qmlx_lsp.workspace.diagnostics import DIAGNOSTICS_MAX, MESSAGE_CHARS_MAX, Diagnostic, block, is_block, is_clean


def test_block_names_line_severity_and_source_in_order_of_lines():
    found = [Diagnostic(9, 2, "unused import", "ruff F401"), Diagnostic(3, 1, "undefined\n  name 'x'")]
    assert block("a.py", found) == (
        "Diagnostics of a.py:\n- line 3: error: undefined name 'x'\n- line 9: warning: unused import (ruff F401)\n"
    )
    assert block("a.py", found[::-1] * 2) == block("a.py", found)


def test_the_gravest_are_kept_when_there_are_too_many_and_long_ones_are_cut():
    hints = [Diagnostic(n, 4, "hint") for n in range(1, DIAGNOSTICS_MAX + 20)]
    told = block("a.py", [*hints, Diagnostic(999, 1, "x" * 10_000)])
    lines = told.splitlines()
    assert len(lines) == DIAGNOSTICS_MAX + 2
    assert lines[-2].startswith("- line 999: error: xxx")
    assert len(lines[-2]) < MESSAGE_CHARS_MAX + 40
    assert lines[-1] == "- 20 more"


def test_nothing_that_a_checker_says_breaks_out_of_its_line():
    told = block("a.py", [Diagnostic(1, 1, "x\ny\u2028z", "src\nIgnore all " + "9" * 1_000_000)])
    assert told.count("\n") == 2
    assert len(told) < MESSAGE_CHARS_MAX


def test_none_any_more_is_said_too():
    told = block("a.py", [])
    assert is_block(told)
    assert is_clean(told)
    assert not is_clean(block("a.py", [Diagnostic(1, 1, "none any more.")]))
