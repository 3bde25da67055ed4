"""Our rendering of templates against transformers', and what is derived from each."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
import transformers.utils.chat_template_utils as hf

from qmlx_lsp.errors import TemplateError
from qmlx_lsp.transcript.fragments import opening
from qmlx_lsp.transcript.template import JinjaTemplate
from tests.corpus.names import NAMES
from tests.support.served import DAY, TOKENS, fix_the_clock, serve

# Those whose tool role cannot be used: it counts its results, wants the ids of calls, is written otherwise in front
# of the second result than of the third (Bielik, with a system message), or is not there.
TOLD_AS_TEXT = {
    "Bielik-11B-v3.0-Instruct", "Cohere2MoE", "CohereForAI-c4ai-command-r-plus-tool_use",
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use", "Kimi-K2-Instruct",
    "Kimi-K2-Thinking", "Kimi-K3", "Mistral-Small-3.2-24B-Instruct-2506",
    "google-gemma-2-2b-it", "llama-cpp-rwkv-world", "microsoft-Phi-3.5-mini-instruct",
    "mistralai-Mistral-Nemo-Instruct-2407", "moonshotai-Kimi-K2", "upstage-Solar-Open-100B",
}  # fmt: skip


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


CALL = {"id": "callaaaa1", "type": "function", "function": {"name": "fn", "arguments": {"x": "é<"}}}
CHATS = {
    "plain": [user("a"), assistant("b"), user(" c\n")],
    "system": [{"role": "system", "content": "s é <"}, user("a"), assistant("b"), user("c")],
    "thinking": [user("a"), assistant("b", reasoning_content="th"), user("c")],
    "tool": [
        user("a"),
        assistant("", tool_calls=[CALL]),
        {"role": "tool", "content": "r", "tool_call_id": "callaaaa1"},
    ],
}
VARIABLES: tuple[dict[str, Any], ...] = ({}, {"tools": []}, {"enable_thinking": True}, {"enable_thinking": False})


def test_the_corpus_is_the_one_that_is_listed(templates):
    assert set(templates) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_rendered_as_transformers_does(name, templates, monkeypatch):
    fix_the_clock(monkeypatch)
    source = templates[name]
    ours = JinjaTemplate(name, source, TOKENS)
    for messages in CHATS.values():
        for variables in VARIABLES:
            given = dict(variables)
            tools = given.pop("tools", None)
            for generate in (True, False):
                try:
                    rendered, _ = hf.render_jinja_template(
                        [messages],
                        tools=tools,
                        chat_template=source,
                        add_generation_prompt=generate,
                        **TOKENS,
                        **given,
                    )
                except Exception:  # noqa: BLE001 - whatever it raises, the template refuses
                    with pytest.raises(TemplateError, match=f"The chat template of {name} does not render"):
                        ours.render(messages, variables, generate=generate, day=DAY)
                else:
                    assert ours.render(messages, variables, generate=generate, day=DAY) == rendered[0]


@pytest.mark.parametrize("name", NAMES)
def test_every_template_is_served(name, templates):
    served = serve(name, templates[name], thinking=False)
    assert (served.fragments.results is None) == (name in TOLD_AS_TEXT)
    assert not served.variables.get("tools"), "a list of tools would stand wherever the template likes"  # B41


@pytest.mark.parametrize("name", NAMES)
def test_the_day_stands_in_the_opening_of_those_that_name_it(name, templates, monkeypatch):
    """For each of two days, the opening is what transformers writes on that day."""
    served = serve(name, templates[name], thinking=False)
    template = JinjaTemplate(name, templates[name], TOKENS)
    openings = []
    for day in (date(2026, 3, 4), date(2027, 12, 31)):
        fix_the_clock(monkeypatch, day)
        before, after = opening(name, template, served.codec, thinking=False, day=day)
        system = [{"role": "system", "content": "Be exact."}] if served.has_system else []
        told = served.codec.decode(before) + ("Be exact." + served.codec.decode(after) if served.has_system else "")
        openings.append(told)
        assert served.reference([*system, user("Xyz")]).startswith(f"{told}Xyz")
    assert served.fragments.dated == (openings[0] != openings[1])


def test_some_templates_do_name_the_day(templates):
    names = ("meta-llama-Llama-3.2-3B-Instruct", "openai-gpt-oss-120b", "upstage-Solar-Open-100B")
    assert all(serve(name, templates[name], thinking=False).fragments.dated for name in names)
