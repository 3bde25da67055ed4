"""``cache explain --against``, from a conversation on the disk and a model's folder to the printed answer."""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qmlx_lsp import paths
from qmlx_lsp.cli.main import main
from qmlx_lsp.engine.scripted import ScriptedBackend
from qmlx_lsp.engine.scripted_tokenizer import tokenizer_json
from qmlx_lsp.session.model import prepare
from qmlx_lsp.storage.conversations import ConversationLog
from qmlx_lsp.transcript.entry import Finish, Kind
from qmlx_lsp.transcript.transcript import Transcript
from tests.support.small_tokenizers import byte_level

# ChatML with the day, thinking that is dropped from old replies, and a list of tools.
TEMPLATE = (
    "{%- for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
    "{%- if loop.first %}{{ 'Day ' + strftime_now('%Y-%m-%d') + '.\n' }}"
    "{%- if tools %}{{ '<tools>' + (tools | tojson) + '</tools>\n' }}{% endif %}{% endif %}"
    "{%- if m.role == 'assistant' and not loop.last %}{{ m.content.split('</think>')[-1] }}"
    "{%- else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SYSTEM, WHY, HOW = "You help.", "Why?", "How?"
FIRST, SECOND = "Because. ", "Like this."
BEGAN = 981_201_600.0  # seconds; noon of 2001-02-03 in Greenwich
END = 256 + 2  # <|im_end|> of the scripted model


@pytest.fixture(autouse=True)
def greenwich(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(os.environ, "TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


class Desk:
    """A project with a conversation of two turns, and the folder of its model."""

    def __init__(self, base: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.project, self.model, self.capfd = base / "project", base / "model", capfd
        for folder in (self.project, self.model):
            folder.mkdir()
        (self.model / "tokenizer.json").write_text(tokenizer_json())
        config = {"chat_template": TEMPLATE, "bos_token": {"content": "<|im_start|>"}, "eos_token": "<|im_end|>"}
        (self.model / "tokenizer_config.json").write_text(json.dumps(config))
        info = replace(ScriptedBackend().load("scripted", lambda *_: None, lambda: False), template=TEMPLATE)
        loaded = prepare(info, thinking=False, today=lambda: date(2001, 2, 3))
        self.codec, self.transcript = loaded.renderer.codec, Transcript(loaded.renderer)
        where = paths.find().conversations
        with closing(ConversationLog(where, clock=lambda: BEGAN)) as log:
            conversation = log.new_epoch(log.open(str(self.project), "i"), "i", why="")
            self._say(log, conversation, [(Kind.SYSTEM, SYSTEM, None)])
            for question, reply, finish in ((WHY, FIRST, Finish.CANCELLED), (HOW, SECOND, Finish.COMPLETE)):
                self._say(log, conversation, [(Kind.QUESTION, question, None)])
                ids = [*self.codec.encode_fragment(reply), *([END] if finish is Finish.COMPLETE else [])]
                entry = self.transcript.reply(self.transcript.reply_header(), ids, finish, reply)
                log.append(conversation, [entry], {})
                self.transcript.extend([entry])

    def _say(self, log: ConversationLog, conversation: Any, drafts: Any) -> None:
        entries = self.transcript.draft(drafts)
        log.append(conversation, entries, {})
        self.transcript.extend(entries)

    def explain(self, given: Any, *flags: str, name: str = "prompt.json", code: int = 0) -> tuple[str, str]:
        (self.project / name).write_text(given if isinstance(given, str) else json.dumps(given))
        arguments = ["cache", "explain", "--root", str(self.project), "--against", str(self.project / name), *flags]
        assert main(arguments) == code
        return self.capfd.readouterr()

    def told(self, given: Any, *flags: str) -> tuple[dict[str, Any], dict[str, Any] | None]:
        found = json.loads(self.explain(given, "--json", *flags)[0])
        return found["against"], found["parts"]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Desk:
    monkeypatch.setenv("QMLX_HOME", str(tmp_path / "h"))
    monkeypatch.setenv("QMLX_MODEL", str(tmp_path / "model"))
    return Desk(tmp_path, capfd)


def messages(*texts: str) -> list[dict[str, str]]:
    roles = ("system", *("user", "assistant") * len(texts))
    return [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]


ALL = messages(SYSTEM, WHY, FIRST, HOW, SECOND)


def test_what_is_all_in_the_conversation_does_not_part(desk: Desk) -> None:
    whole = desk.codec.decode(desk.transcript.log.ids())
    for count in (2, 3, 4):  # the head of a reply that ends the list is none of its messages
        about, parts = desk.told(ALL[:count])
        assert (about["reason"], parts, about["messages"]) == ("ends", None, count)
        assert (about["day"], about["same"] <= about["tokens"] < len(desk.transcript.log)) == ("2001-02-03", True)
        text = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in ALL[:count])
        assert about["same"] >= len(desk.codec.encode_fragment(text.replace("You", "Day 2001-02-03.\nYou", 1)))
    assert desk.told(ALL, "--no-generate")[0]["reason"] == "longer"  # by the line break behind the last reply
    assert desk.told(desk.transcript.log.ids())[0] == {
        "file": str(desk.project / "prompt.json"), "form": "ids", "messages": None, "day": "2001-02-03",
        "tokens": len(whole.encode()) - sum(len(t) - 1 for t in ("<|im_start|>",) * 5 + ("<|im_end|>",) * 5),
        "same": len(desk.transcript.log), "reason": "same", "why": "both are the same to the last token",
        "restorable": 0,
    }  # fmt: skip
    about, parts = desk.told(whole.rpartition("ike this.")[0])
    assert (about["form"], about["reason"], parts) == ("text", "ends", None)


def test_a_reply_that_was_interrupted_and_forgotten_is_found(desk: Desk) -> None:
    about, parts = desk.told([*ALL[:2], *ALL[3:]])
    assert parts is not None
    reply = next(entry for entry in desk.transcript.entries if entry.kind is Kind.ASSISTANT)
    # The same up to and with <|im_start|>: the reply's header begins with <|im_end|>, a line break and this.
    assert parts["at"] == about["same"] == reply.start + 3
    assert parts["entry"] == {"entry": 3, "kind": "assistant", "path": None, "text": FIRST}
    assert parts["message"] == {"message": 2, "role": "user"}
    assert parts["here"]["text"].startswith("assistant\nBecause. ")
    assert parts["there"]["text"].startswith("user\nHow?")
    assert parts["before"]["text"].endswith("Why?<|im_end|>\n<|im_start|>")
    assert about["reason"] == "missing"
    assert parts["why"] == about["why"] == "the reply is missing there: a user message stands in its place"
    out, _ = desk.explain([*ALL[:2], *ALL[3:]])
    assert "in entry 3, assistant ('Because.'), in message 3 (user)" in out
    assert out.endswith("Why: the reply is missing there: a user message stands in its place.\n")


def test_a_space_that_was_trimmed_is_found(desk: Desk) -> None:
    given = [*ALL]
    given[2] = {"role": "assistant", "content": FIRST.strip()}
    about, parts = desk.told({"messages": given})
    assert parts is not None
    assert (about["reason"], parts["message"], parts["entry"]["entry"]) == (
        "white space", {"message": 2, "role": "assistant"}, 3,
    )  # fmt: skip


def test_a_list_of_tools_stands_early_and_a_system_text_differs(desk: Desk) -> None:
    tools = [{"type": "function", "function": {"name": "look"}}]
    about, parts = desk.told({"messages": ALL[:4], "tools": tools})
    assert parts is not None
    assert (about["reason"], parts["message"], parts["entry"]["kind"]) == (
        "tools", {"message": 0, "role": "system"}, "system",
    )  # fmt: skip
    assert desk.told([{"role": "system", "content": "You hinder."}, *ALL[1:]])[0]["reason"] == "system"


def test_another_day_is_a_date_that_differs(desk: Desk) -> None:
    whole = desk.codec.decode(desk.transcript.log.ids())
    about, parts = desk.told(whole.replace("2001-02-03", "2001-02-04"))
    assert parts is not None
    assert (about["reason"], parts["message"], parts["at"]) == ("date", None, len("system\nDay 2001-02-0") + 1)


def test_a_control_token_in_a_message_is_read_as_one(desk: Desk) -> None:
    """A server cannot tell the words of a message from its own."""
    about, _ = desk.told([ALL[0], {"role": "user", "content": "Why?<|im_end|>"}])
    assert (about["reason"], about["tokens"]) == ("text", desk.told(ALL[:2])[0]["tokens"] + 1)


def test_stdin_and_lines_of_messages(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    data = "\n".join(json.dumps(message) for message in ALL[:2]).encode()
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"\xef\xbb\xbf" + data)))
    assert main(["cache", "explain", "--root", str(desk.project), "--against", "-"]) == 0
    out = desk.capfd.readouterr().out
    assert out.splitlines()[-2].startswith("stdin has ")
    assert out.splitlines()[-1] == (
        "Nothing parts: the conversation goes on where it ends, so all of it can be reused."
    )


@pytest.mark.parametrize(("given", "said"), [
    ('[{"role": "user"}, 3]', "prompt.json: item 2 is no message: it is no object."),
    ("", "prompt.json is empty: there is nothing to compare."),
    ([{"role": "user", "content": "x"}, {"content": "y"}], "prompt.json: item 2 is no message: it has no role."),
])  # fmt: skip
def test_what_is_no_prompt_is_one_line(desk: Desk, given: Any, said: str) -> None:
    out, err = desk.explain(given, code=2)
    assert (out, err.count("\n")) == ("", 1)
    assert err.endswith(f"{said}\n")


def test_files_that_cannot_be_read_are_one_line(desk: Desk) -> None:
    (desk.project / "latin").write_bytes(b"caf\xe9")
    for name, said in (
        ("none", "none cannot be read: No such file or directory."),
        (".", "cannot be read: Is a directory."),
        ("latin", "latin is not UTF-8: byte 3 is 0xe9."),
    ):
        argument = str(desk.project / name)
        assert main(["cache", "explain", "--root", str(desk.project), "--against", argument]) == 2
        out, err = desk.capfd.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert err.endswith(f"{said}\n")


def test_what_is_missing_of_the_model_is_said(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    config = desk.model / "tokenizer_config.json"
    config.write_text(json.dumps({"chat_template": "{{ raise_exception('no') }}"}))
    assert "The chat template of " in desk.explain(ALL, code=2)[1]
    config.write_text(json.dumps({"chat_template_type": "deepseek_v32"}))
    assert "is program code, which is not run here: give the rendered text." in desk.explain(ALL, code=2)[1]
    (desk.model / "tokenizer.json").write_text("{")
    assert "The tokenizer of " in desk.explain(ALL, code=2)[1]
    (desk.model / "tokenizer.json").write_text(byte_level(added_tokens=[]))
    config.write_text("{}")
    assert "has no chat template and is of no known family" in desk.explain(ALL, code=2)[1]
    monkeypatch.setenv("QMLX_MODEL", "scripted")
    out, err = desk.explain(ALL, code=2)
    assert out == ""
    assert err == (
        "qmlx-lsp: This needs the tokenizer and the chat template of the model scripted, which has no folder on this "
        "disk: fetch it with `qmlx-lsp model pull`, or name the conversation's model ([model] name or QMLX_MODEL).\n"
    )


def test_a_model_that_the_conversation_was_not_made_with_is_refused(desk: Desk) -> None:
    described = json.loads(tokenizer_json())
    vocab = described["model"]["vocab"]
    described["model"]["vocab"] = dict(zip(vocab, reversed(vocab.values()), strict=True))
    (desk.model / "tokenizer.json").write_text(json.dumps(described))
    assert "This conversation was made with another model than " in desk.explain(ALL, code=2)[1]


@pytest.mark.parametrize("form", ["file", "named", "list of named"])
def test_a_template_may_lie_in_many_places(desk: Desk, form: str) -> None:
    config = desk.model / "tokenizer_config.json"
    named: Any = {"tool_use": "wrong", "default": TEMPLATE}
    if form == "file":
        (desk.model / "chat_template.jinja").write_text(TEMPLATE)
        named = "wrong"
    elif form == "list of named":
        named = [{"name": name, "template": template} for name, template in named.items()]
    config.write_text(json.dumps({"chat_template": named}))
    assert desk.told(ALL[:2])[0]["reason"] == "ends"


@pytest.mark.usefixtures("desk")
def test_two_comparisons_at_once_are_refused() -> None:
    with pytest.raises(SystemExit) as ended:
        main(["cache", "explain", "--with", ".", "--against", "x"])
    assert ended.value.code == 2
