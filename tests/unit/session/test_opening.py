"""Nothing that moves stands early: the system entry is the same bytes whoever asks, wherever and whenever."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from qmlx_lsp.engine.backend import ModelInfo
from qmlx_lsp.engine.scripted import ScriptedBackend
from qmlx_lsp.errors import TemplateError
from qmlx_lsp.session.model import SYSTEM_TEXT, prepare
from qmlx_lsp.transcript.entry import Kind
from qmlx_lsp.transcript.suffix import Tail
from qmlx_lsp.transcript.template import JinjaTemplate
from tests.support.bench import bench, text_of
from tests.support.small_tokenizers import byte_level, with_marks

DATED = (
    "{%- for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
    "{%- if loop.first %}Today is {{ strftime_now('%A, %d %B %Y') }}.{{ '\n' }}{% endif %}"
    "{{- m.content + '<|im_end|>\n' }}{% endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# Prints the opening of a conversation that begins on a given day, and where the program looked at its surroundings.
OPENING = """
import json, os, sys, time
from datetime import date
from tests.unit.session.test_opening import opening_on
os.environ.get("TZ") and time.tzset()
print(json.dumps(opening_on(date(2026, 3, 4))))
"""


class Dated(ScriptedBackend):
    """As Llama 3.x and gpt-oss: the template writes today's date into its opening."""

    def load(self, source, report, cancelled) -> ModelInfo:
        return replace(super().load(source, report, cancelled), template=DATED)


def info_of(template: str | None, **changes) -> ModelInfo:
    info = ScriptedBackend().load("m", lambda *_report: None, lambda: False)
    return replace(info, name="m", template=template, **changes)


def opening_on(day: date) -> list[int]:
    renderer = prepare(info_of(DATED), thinking=False, today=lambda: day).renderer
    return renderer.suffix(Tail(), Kind.SYSTEM, SYSTEM_TEXT)


@pytest.mark.slow
def test_the_opening_is_the_same_in_every_surrounding(tmp_path: Path) -> None:
    (tmp_path / "ö ß").mkdir()
    surroundings = [
        {"TZ": "Pacific/Kiritimati", "LC_ALL": "C", "PYTHONHASHSEED": "0"},
        {"TZ": "America/Adak", "LC_ALL": "de_DE.UTF-8", "LANG": "tr_TR.UTF-8", "PYTHONHASHSEED": "1"},
        {"TZ": "UTC", "LC_ALL": "ja_JP.UTF-8", "PYTHONHASHSEED": "12345", "PYTHONUTF8": "0"},
    ]
    root = Path(__file__).parents[3]
    shown = set()
    for around, cwd in zip(surroundings, (tmp_path, tmp_path / "ö ß", Path("/")), strict=True):
        environ = {**os.environ, **around, "PYTHONPATH": str(root)}
        done = subprocess.run([sys.executable, "-c", OPENING], cwd=cwd, env=environ, capture_output=True, check=True)
        shown.add(done.stdout)
    (one,) = shown
    assert json.loads(one) == opening_on(date(2026, 3, 4))
    assert "Today is Wednesday, 04 March 2026.\n" in text_of(opening_on(date(2026, 3, 4)))


async def test_midnight_reads_nothing_anew(tmp_path: Path) -> None:
    """B40: a turn at 23:59, one at 00:00, and one after a restart the next day."""
    days = itertools.chain([date(2026, 3, 4)], itertools.repeat(date(2026, 3, 5)))
    async with bench(tmp_path, make=Dated, today=lambda: next(days)) as b:
        await b.ask("Before midnight?")
        first = b.ids()
        usage = (await b.ask("After midnight?")).usage
        assert (usage.live, usage.plan) == (len(first), "live")
        second = b.ids()
        assert second[: len(first)] == first
        await b.restart()
        usage = (await b.ask("And the next day?")).usage
        assert (usage.restored, usage.reason) == (len(second), "start")
        assert text_of(b.ids()).count("Today is") == 1
        assert (await b.session()).conversation.epoch == 0


async def test_a_conversation_that_begins_later_has_its_own_day(tmp_path: Path) -> None:
    days = iter([date(2026, 3, 4), date(2026, 3, 5)])
    other = tmp_path / "other"
    other.mkdir()
    async with bench(tmp_path, make=Dated, today=lambda: next(days)) as b:
        await b.ask("A")
        await b.ask("B", root=other)
        assert "Today is Wednesday, 04 March 2026.\n" in text_of(b.ids())
        assert "Today is Thursday, 05 March 2026.\n" in text_of(b.ids(other))


@pytest.mark.parametrize(
    ("form", "want"),
    [
        ("%d %b %Y", "04 Mar 2026"),
        ("%A, %B %d", "Wednesday, March 04"),
        ("%a %h %y", "Wed Mar 26"),
        ("%x %X %p", "03/04/26 00:00:00 AM"),
        ("%c", "Wed Mar  4 00:00:00 2026"),
        ("100%% %%B %Y-%m-%d", "100% %B 2026-03-04"),
    ],
)
def test_days_are_written_in_english_under_any_locale(form: str, want: str) -> None:
    """By tables of our own: what a library sets as the process's locale changes nothing."""
    template = JinjaTemplate("m", "{{ strftime_now(form) }}", {})
    assert template.render([], {"form": form}, generate=False, day=date(2026, 3, 4)) == want


def test_the_identity_has_no_day() -> None:
    days = [date(2026, 3, 4), date(2031, 12, 31)]
    assert len({prepare(info_of(DATED), thinking=False, today=lambda day=day: day).identity for day in days}) == 1


def test_a_template_that_dates_every_turn_is_refused() -> None:
    dated = DATED.replace("{%- if loop.first %}", "{%- if true %}")
    with pytest.raises(TemplateError, match="The chat template of m writes the date into every turn"):
        prepare(info_of(dated), thinking=False, today=date.today)


# --- models without a template -------------------------------------------------------------------------------------


def test_a_model_without_a_template_is_served_by_its_family() -> None:
    renderer = prepare(info_of(None), thinking=False, today=date.today).renderer
    text = renderer.codec.decode(renderer.suffix(Tail(), Kind.SYSTEM, "S"))
    assert text == "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\n"


@pytest.mark.parametrize(
    ("marks", "opening"),
    [
        (
            ("<|start|>", "<|channel|>", "<|message|>", "<|end|>"),
            "<|start|>developer<|message|># Instructions\n\nS\n\n",
        ),
        (
            ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
            "<|start_header_id|>system<|end_header_id|>\n\nS",
        ),
        (("<start_of_turn>", "<end_of_turn>"), "<start_of_turn>user\nS\n\n"),
        (("[INST]", "[/INST]"), "[INST]S\n\n"),
    ],
)
def test_every_family_serves_a_conversation(marks, opening) -> None:
    tokenizer = with_marks(*marks)._plain.to_str().replace("<|im_", "<|of another family_")
    renderer = prepare(info_of(None, tokenizer_json=tokenizer), thinking=False, today=date.today).renderer
    assert renderer.codec.decode(renderer.suffix(Tail(), Kind.SYSTEM, "S")).startswith(opening)


def test_a_model_of_no_family_is_refused_by_name() -> None:
    described = json.loads(byte_level())
    described["added_tokens"] = []
    with pytest.raises(
        TemplateError, match="The model m has no chat template, and its tokens are not those of a known"
    ):
        prepare(info_of(None, tokenizer_json=json.dumps(described)), thinking=False, today=date.today)


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("{% for m in messages %}", "is not valid"),
        ("{% break %}", "is not valid"),
        ("{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}", "does not render a conversation"),
        ("{{ raise_exception('only for images') }}", "does not render a conversation: only for images"),
        ("{{ messages[0].content }}", "shows a message 0 times"),
        ("{% for m in messages %}{{ loop.index }}{{ m.content }}{% endfor %}", "cannot be cut into fixed parts"),
    ],
)
def test_an_unusable_template_is_refused_with_its_name_and_the_reason(template, why) -> None:
    with pytest.raises(TemplateError, match=f"^The chat template of m {why}"):
        prepare(info_of(template), thinking=False, today=date.today)


async def test_a_question_to_a_model_whose_template_is_refused(tmp_path: Path) -> None:
    """Whoever asks is told, by name and with the reason; nothing is recorded."""

    class Numbering(ScriptedBackend):
        def load(self, source, report, cancelled) -> ModelInfo:
            info = super().load(source, report, cancelled)
            return replace(info, template="{% for m in messages %}{{ loop.index }}{{ m.content }}{% endfor %}")

    async with bench(tmp_path, make=Numbering) as b:
        with pytest.raises(TemplateError, match=r"^The chat template of scripted cannot be cut into fixed parts"):
            await b.ask("Anyone?")
        assert b.app.registry.services.log.roots() == []
