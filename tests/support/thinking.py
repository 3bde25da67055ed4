"""The scripted backend with a template that renders the thinking setting, as Qwen's does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from qmlx_lsp.engine.backend import ModelInfo, Report
from qmlx_lsp.engine.scripted import ScriptedBackend
from qmlx_lsp.transcript.families import FAMILIES

# Without thinking, the head of a reply holds an empty thinking block.
_EMPTY = "{%- if add_generation_prompt and not enable_thinking %}{{ '<think>\n\n</think>\n\n' }}{% endif %}"


MODE_IN_THE_OPENING = (
    "{%- for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
    "{%- if loop.first %}Thinking: {{ 'on' if enable_thinking else 'off' }}{{ '\n' }}{% endif %}"
    "{{- m.content + '<|im_end|>\n' }}{% endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


class ThinkingBackend(ScriptedBackend):
    TEMPLATE = FAMILIES["ChatML"][1] + _EMPTY

    def load(self, source: str, report: Report, cancelled: Callable[[], bool]) -> ModelInfo:
        info = super().load(source, report, cancelled)
        return replace(info, template=self.TEMPLATE, think=("<think>", "</think>"))


class OpeningBackend(ThinkingBackend):
    TEMPLATE = MODE_IN_THE_OPENING
