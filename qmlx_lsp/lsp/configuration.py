"""What an editor's settings say: ``qmlx.exclude``, ``qmlx.trusted``, ``qmlx.inline`` and ``qmlx.completion``.

They come with ``initialize``, are pushed when they change, and are asked for, per folder, where the editor can be
asked.

Invariant: until an editor has answered what it was asked, nothing is told of its folders, for it may say that
something is private; an editor that does not answer holds nobody up for more than ``CONFIGURATION_S``.
Invariant: settings can take trust away, and never give what the editor withheld at ``initialize``: a project may
bring settings of its own along.
Invariant: what cannot be understood is said in one line, and what was known stays.
"""

from __future__ import annotations

import asyncio
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls.exceptions import JsonRpcException

from qmlx_lsp.lsp.connection import Connection, InlineOptions
from qmlx_lsp.settings import Inline, Limit

SECTION = "qmlx"
CONFIGURATION_S = 2.0
"""Seconds that an editor may take to answer what its settings are."""


def begin(connection: Connection, options: Any) -> None:
    """Take the options of ``initialize``: our keys by themselves or under ``qmlx``."""
    given = options if isinstance(options, Mapping) else {}
    for place in (given, given.get(SECTION)):
        connection.exclude = _take(connection, place, connection.roots) or connection.exclude


def added(connection: Connection, roots: Sequence[Path]) -> None:
    """Folders have come: what holds for all folders holds for them."""
    for root in roots:
        if connection.exclude:
            connection.registry.project(root).exclude(connection, connection.exclude)
    ask(connection, roots)


def did_change(connection: Connection, params: types.DidChangeConfigurationParams) -> None:
    """Settings have changed: they come along, or have to be asked for."""
    settings = params.settings
    exclude = _take(connection, settings.get(SECTION) if isinstance(settings, Mapping) else None, connection.roots)
    connection.exclude = connection.exclude if exclude is None else exclude
    ask(connection, connection.roots)


def ask(connection: Connection, roots: Sequence[Path]) -> None:
    """Ask the editor for its settings for these folders, if it can be asked."""
    workspace = connection.capabilities.workspace if connection.capabilities else None
    if roots and workspace and workspace.configuration:
        asking = asyncio.ensure_future(_ask(connection, list(roots)))
        for root in roots:
            connection.registry.project(root).wait_for(asking)
        connection.run(asking)


async def _ask(connection: Connection, roots: Sequence[Path]) -> None:
    items = [types.ConfigurationItem(scope_uri=root.as_uri(), section=SECTION) for root in roots]
    request = connection.protocol.send_request_async(
        types.WORKSPACE_CONFIGURATION, types.ConfigurationParams(items=items)
    )
    try:
        answers = await asyncio.wait_for(request, CONFIGURATION_S)
    except (TimeoutError, JsonRpcException):  # no answer, or an error as the answer
        return
    for root, answer in zip(roots, answers if isinstance(answers, (list, tuple)) else (), strict=False):
        _take(connection, answer, [root])


def _take(connection: Connection, ours: Any, roots: Sequence[Path]) -> list[str] | None:
    """Act on our section of somebody's settings for ``roots``; returns what it excludes, if it says so."""
    if not isinstance(ours, Mapping):
        return None
    if ours.get("trusted", True) is not True and ours["trusted"] is not None:
        connection.trusted = False  # whatever else is said is no trust
    connection.inline = _inline(connection, ours)
    exclude = ours.get("exclude")
    if exclude is None:
        return None
    if not isinstance(exclude, list) or not all(isinstance(pattern, str) for pattern in exclude):
        _complain(connection, f"qmlx.exclude is {reprlib.repr(exclude)}, but must be a list of patterns.")
        return None
    for root in roots:
        connection.registry.project(root).exclude(connection, exclude)
    return exclude


def _inline(connection: Connection, ours: Mapping[str, Any]) -> InlineOptions:
    """What is said of completions; what cannot be understood is as it was."""
    taken: dict[str, Any] = {}
    for section, key, field in _INLINE:
        held, limit = ours.get(section), _LIMITS.get(field)
        value = held.get(key) if isinstance(held, Mapping) else None
        if value is None:
            continue
        if isinstance(value, bool) if limit is None else type(value) is int and limit.low <= value <= limit.high:
            taken[field] = value
        else:
            allowed = "true or false" if limit is None else f"a whole number from {limit.low:,} to {limit.high:,}"
            _complain(connection, f"qmlx.{section}.{key} is {reprlib.repr(value)}, but must be {allowed}.")
    return replace(connection.inline, **taken)


# Section, key, and our name. What the daemon's own settings have no limit for is a switch.
_INLINE = (
    ("inline", "enable", "enable"),
    ("inline", "debounceMs", "debounce_ms"),
    ("inline", "maxTokens", "max_tokens"),
    ("inline", "maxLines", "max_lines"),
    ("completion", "list", "in_list"),
)
_LIMITS: dict[str, Limit] = {one.name: one.metadata["limit"] for one in fields(Inline) if "limit" in one.metadata}


def _complain(connection: Connection, text: str) -> None:
    params = types.ShowMessageParams(type=types.MessageType.Warning, message=text)
    connection.protocol.notify(types.WINDOW_SHOW_MESSAGE, params)
