"""A real chat template served with a tokenizer, beside the same template rendered by transformers.

Where there is no real tokenizer for a template, one of single bytes is made, with the marks that the template writes
as control tokens.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import cache
from typing import Any

import transformers.utils.chat_template_utils as hf

from qmlx_lsp.transcript.encoder import Codec
from qmlx_lsp.transcript.entry import Entry, Finish, Kind
from qmlx_lsp.transcript.fragments import Fragments, Marks, derive, opening
from qmlx_lsp.transcript.probes import chat, cut
from qmlx_lsp.transcript.suffix import Renderer
from qmlx_lsp.transcript.template import JinjaTemplate
from qmlx_lsp.transcript.transcript import Transcript
from tests.support import corpus
from tests.support.small_tokenizers import with_marks

DAY = date(2026, 3, 4)
MARK = re.compile(r"<[^<>\s]{1,60}>|\[/?[A-Z_]{3,}\]|\[e~\[|\]~b\]|\]~!b\[")
TOKENS = {"bos_token": "<BOS>", "eos_token": "<EOS>"}
# Which real tokenizer has the tokens of which template, and where its model stops.
REAL: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "Qwen-QwQ-32B": ("qwen3", ("<|im_end|>", "<|endoftext|>")),
    "Qwen-Qwen2.5-7B-Instruct": ("qwen3", ("<|im_end|>", "<|endoftext|>")),
    "Qwen-Qwen3-0.6B": ("qwen3", ("<|im_end|>", "<|endoftext|>")),
    "Qwen3-Coder": ("qwen3", ("<|im_end|>", "<|endoftext|>")),
    "Qwen3.5-4B": ("qwen3", ("<|im_end|>", "<|endoftext|>")),
    "MiMo-VL": ("qwen3", ("<|im_end|>",)),
    "google-gemma-2-2b-it": ("gemma3", ("<end_of_turn>", "<eos>")),
    "openai-gpt-oss-120b": ("gptoss", ("<|return|>", "<|call|>", "<|endoftext|>")),
    "meta-llama-Llama-3.1-8B-Instruct": ("llama3_1", ("<|eot_id|>", "<|end_of_text|>")),
    "meta-llama-Llama-3.2-3B-Instruct": ("llama3_1", ("<|eot_id|>", "<|end_of_text|>")),
    "meta-llama-Llama-3.3-70B-Instruct": ("llama3_1", ("<|eot_id|>", "<|end_of_text|>")),
    "deepseek-ai-DeepSeek-V3.1": ("deepseek_v3", ("<｜end▁of▁sentence｜>",)),
    "deepseek-ai-DeepSeek-V3.2": ("deepseek_v3", ("<｜end▁of▁sentence｜>",)),
    "deepseek-ai-DeepSeek-V4": ("deepseek_v3", ("<｜end▁of▁sentence｜>",)),
    "llama-cpp-deepseek-r1": ("deepseek_v3", ("<｜end▁of▁sentence｜>",)),
    "Qwen3 with its tokenizer": ("qwen3", ("<|im_end|>", "<|endoftext|>")),
    "Gemma 3 with its tokenizer": ("gemma3", ("<end_of_turn>", "<eos>")),
    "Llama 3 with its tokenizer": ("llama3_1", ("<|eot_id|>", "<|end_of_text|>")),
    "DeepSeek V3 with its tokenizer": ("deepseek_v3", ("<｜end▁of▁sentence｜>",)),
    "SmolLM2 with its tokenizer": (corpus.EMBEDDED, ("<|im_end|>",)),
}
# Those that come with their tokenizer.
OWN = tuple(f"{name} with its tokenizer" for name in ("Qwen3", "Gemma 3", "Llama 3", "DeepSeek V3", "SmolLM2"))
# The marks at which models of the other templates stop, apart from the first one behind a reply.
STOPS = ("<|call|>", "<|calls|>", "<|eom_id|>", "<|eom|>", "<|observation|>", "<|tool_response>", "<|end_of_msg|>")


@dataclass
class Served:
    """One template with a tokenizer. ``variables`` are those that the program found for it."""

    name: str
    source: str
    tokens: Mapping[str, str]
    codec: Codec
    plain: Any
    eos_ids: frozenset[int]
    thinking: bool
    fragments: Fragments
    renderer: Renderer
    has_system: bool
    variables: Mapping[str, Any] = field(repr=False)

    def reference(self, messages: Sequence[Mapping[str, Any]], *, generate: bool = True) -> str:
        """The template's own rendering, by transformers."""
        given = dict(self.variables)
        tools = given.pop("tools", None)
        rendered, _ = hf.render_jinja_template(
            [list(messages)], tools=tools, chat_template=self.source, add_generation_prompt=generate,
            **self.tokens, **given,
        )  # fmt: skip
        return rendered[0]


def fix_the_clock(monkeypatch: Any, day: date = DAY) -> None:
    """For transformers, which asks it whenever a template writes the date."""

    class FixedClock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime(day.year, day.month, day.day, 12, tzinfo=tz)

    monkeypatch.setattr(hf, "datetime", FixedClock)


@cache
def serve(name: str, source: str, *, thinking: bool, real: corpus.RealTokenizer | None = None) -> Served:
    """``name`` names a row of ``REAL`` when there is a ``real`` tokenizer."""
    tokens = TOKENS if real is None else {key: real.token(key) for key in TOKENS}
    template = JinjaTemplate(name, source, tokens)
    probe, texts = cut(name, template, think=thinking, day=DAY)
    marks = Marks(("<think>", "</think>") if "<think>" in source else None, ("<tool_call>", "</tool_call>"))
    if real is not None:
        codec = real.codec
        eos = frozenset(real.id(text) for text in REAL[name][1])
    else:
        shown = [probe.render(chat(3, system=texts.has_system)), source]
        found = [mark for text in shown for mark in MARK.findall(text)]
        codec = with_marks(*TOKENS.values(), "<tool_call>", "</tool_call>", *found)
        first = MARK.search(texts.after_reply)
        stops = [first.group()] if first and first.start() < 3 and first.group() != "<|close|>" else []
        stops += [stop for stop in STOPS if stop in source]
        eos = frozenset(token for stop in stops if (token := codec.control(stop)) is not None)
    fragments = derive(name, template, codec, eos, thinking=thinking, marks=marks)
    renderer = Renderer(fragments, codec, eos, lambda: opening(name, template, codec, thinking=thinking, day=DAY))
    return Served(
        name, source, tokens, codec, codec._plain, eos, thinking, fragments, renderer, texts.has_system,
        probe.variables,
    )  # fmt: skip


class Teller:
    """Tells a transcript and the reference's messages the same things."""

    SYSTEM = "Be exact."

    def __init__(self, served: Served) -> None:
        self.served = served
        self.transcript = Transcript(served.renderer)
        self.messages: list[dict[str, Any]] = []
        self._said = ""
        self.tell(Kind.SYSTEM, self.SYSTEM)
        self.since = 0  # where what was appended behind the last reply begins

    def tell(self, kind: Kind, text: str) -> None:
        before = self.transcript.log.ids()
        self.transcript.extend(self.transcript.draft([(kind, text, None)]))
        self._stable(before)
        if kind is Kind.SYSTEM and self.served.has_system:
            self.messages.append({"role": "system", "content": text})
        elif kind is Kind.SYSTEM:
            self._said = f"{text}\n\n"
        else:
            self._said += text
        if kind is Kind.QUESTION:
            self.messages.append({"role": "user", "content": self._said})
            self._said = ""

    def reply(self, ids: Sequence[int], finish: Finish, end: Sequence[int] = (), **message: Any) -> Entry:
        """A reply of ``ids`` and ``end``, by which the model ended it. ``message``: how the reference calls it, if
        not by its text."""
        before = self.transcript.log.ids()
        header = self.transcript.reply_header()
        text = self.text(ids)
        ids = [*ids, *end]
        entry = self.transcript.reply(header, ids, finish, text)
        self.transcript.extend([entry])
        self._stable(before)
        assert list(entry.ids[len(header) :]) == list(ids), "ids are kept as generated"
        self.messages.append({"role": "assistant", "content": text, **message})
        self.since = len(self.transcript.log) - len(end)
        return entry

    def result(self, tool: str, text: str, call: str) -> None:
        before = self.transcript.log.ids()
        self.transcript.extend([self.transcript.result(tool, text)])
        self._stable(before)
        self.messages.append({"role": "tool", "name": tool, "content": text, "tool_call_id": call})

    def _stable(self, before: list[int]) -> None:
        assert self.transcript.log.ids(0, len(before)) == before, "what was read has moved"

    def text(self, ids: Sequence[int]) -> str:
        return self.served.codec.decode(ids)

    @property
    def ids(self) -> list[int]:
        """The log, and the head of the reply that is to come."""
        return [*self.transcript.log.ids(), *self.transcript.reply_header()]

    @property
    def appended(self) -> str:
        """What follows the text of the last reply."""
        return self.text(self.ids[self.since :])
