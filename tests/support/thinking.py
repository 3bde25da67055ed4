"""The scripted backend with a template that renders the thinking setting, as Qwen's does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from qmlx_lsp.engine.backend import ModelInfo, Report
from qmlx_lsp.engine.scripted import ChatML, ScriptedBackend


class ThinkingChatML(ChatML):
    """Without thinking, the head of a reply holds an empty thinking block."""

    def render(self, messages: Sequence[Mapping[str, Any]], *, generate: bool, thinking: bool) -> str:
        text = super().render(messages, generate=generate, thinking=thinking)
        return text + ("" if thinking or not generate else "<think>\n\n</think>\n\n")


class ThinkingBackend(ScriptedBackend):
    def load(self, source: str, report: Report, cancelled: Callable[[], bool]) -> ModelInfo:
        info = super().load(source, report, cancelled)
        return replace(info, template=ThinkingChatML(), think=("<think>", "</think>"))
