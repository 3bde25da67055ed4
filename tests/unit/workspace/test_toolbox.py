"""What ``.qmlx.toml`` may say, and how what it may not is refused."""

from __future__ import annotations

import pytest

from qmlx_lsp.errors import ToolError
from qmlx_lsp.workspace.toolbox import Tool, chosen, parse


def test_all_that_can_be_said() -> None:
    text = """
[tools.tests]
command = " make test | tail "
timeout_s = 90
output_kb = 32
cwd = "back/../backend/"
title = " the tests "
env = { CI = "1", EMPTY = "" }

[tools."lint.py"]
command = ["ruff", "check", "a b"]
"""
    assert parse(text) == {
        "tests": Tool(
            "tests", ("/bin/sh", "-c", " make test | tail "), "make test | tail", "the tests",
            90.0, 32, "backend", {"CI": "1", "EMPTY": ""},
        ),
        "lint.py": Tool("lint.py", ("ruff", "check", "a b"), "ruff check 'a b'", "lint.py"),
    }  # fmt: skip
    assert list(parse(text)) == ["tests", "lint.py"]
    assert parse("") == parse("[tools]") == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tools = [", ".qmlx.toml is not valid TOML: "),
        ("a = " + "[" * 50_000, ".qmlx.toml is not valid TOML: "),
        ("model = 'x'", "unknown key model; allowed is tools."),
        ("tools = 3", "tools must be a table of tools"),
        ("[tools]\nt = 'make'", "tools.t must be a table, [tools.t]."),
        ("[tools.'a b']\ncommand='x'", "a tool cannot be called 'a b'"),
        (f"[tools.{'n' * 65}]\ncommand='x'", "a tool cannot be called"),
        ("[tools.t]", "tools.t.command is missing"),
        ("[tools.t]\ncommand='x'\ntimout_s=1", "unknown key tools.t.timout_s; allowed are command, cwd, env, "),
        ("[tools.t]\ncommand=''", "tools.t.command is '', but must be a text for the shell"),
        ("[tools.t]\ncommand=[]", "tools.t.command is [], but must be"),
        ("[tools.t]\ncommand=['a', 1]", "tools.t.command is ['a', 1], but must be"),
        ("[tools.t]\ncommand=7", "tools.t.command is 7, but must be"),
        ('[tools.t]\ncommand="a\\u0000b"', "tools.t.command is 'a\\x00b', but must be"),
        (
            "[tools.t]\ncommand='x'\ntimeout_s=0",
            "tools.t.timeout_s is 0, but must be a number of seconds, 0.1 to 86400",
        ),
        ("[tools.t]\ncommand='x'\ntimeout_s=nan", "tools.t.timeout_s is nan"),
        ("[tools.t]\ncommand='x'\ntimeout_s=true", "tools.t.timeout_s is True"),
        ("[tools.t]\ncommand='x'\noutput_kb=1.5", "tools.t.output_kb is 1.5, but must be a whole number of KiB"),
        ("[tools.t]\ncommand='x'\noutput_kb=2000", "tools.t.output_kb is 2000"),
        ("[tools.t]\ncommand='x'\ncwd='/tmp'", "tools.t.cwd is '/tmp', but must be a folder"),
        ("[tools.t]\ncommand='x'\ncwd='a/../../b'", "but must be a folder of the project"),
        ("[tools.t]\ncommand='x'\ncwd=''", "but must be a folder of the project"),
        ('[tools.t]\ncommand="x"\ntitle="a\\nb"', "tools.t.title is 'a\\nb', but must be a text of one line"),
        ("[tools.t]\ncommand='x'\ntitle=' '", "tools.t.title is ' '"),
        ("[tools.t]\ncommand='x'\nenv='A=1'", "tools.t.env is 'A=1', but must be a table of texts"),
        ("[tools.t]\ncommand='x'\nenv={A=1}", "tools.t.env.A is 1, but must be a text"),
        ("[tools.t]\ncommand='x'\nenv={'A=B'='1'}", "tools.t.env has 'A=B', which no variable can be called"),
    ],
)
def test_what_is_not_understood_is_one_line_with_the_key(text: str, said: str) -> None:
    with pytest.raises(ToolError) as caught:
        parse(text)
    assert said in str(caught.value)
    assert str(caught.value).startswith(".qmlx.toml")
    assert "\n" not in str(caught.value)


def test_which_tool_is_meant() -> None:
    one = parse("[tools.a]\ncommand='x'")
    two = parse("[tools.a]\ncommand='x'\n[tools.b]\ncommand='y'")
    assert chosen(one, None, "/p") == chosen(two, "a", "/p") == one["a"]
    for tools, name, said in (
        ({}, "a", "There are no tools in /p/.qmlx.toml: describe one"),
        (two, None, "Say which tool is to be run; in /p/.qmlx.toml there are: a, b."),
        (two, "c", "There is no tool c in /p/.qmlx.toml; there are: a, b."),
    ):
        with pytest.raises(ToolError) as caught:
            chosen(tools, name, "/p")
        assert said in str(caught.value)
