"""A chat template as text, rendered by Jinja in a sandbox as transformers renders it, but for the clock.

Templates come with models from strangers: they run in Jinja's sandbox and see plain data only. Many of them write
today's date into the opening; here the day is an argument, for a conversation must begin with the same bytes
tomorrow.

Invariant: what is rendered depends on the template, the messages, the variables and the day alone: not on the clock,
the time zone, the locale or the working folder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time
from typing import Any, NoReturn, Protocol

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from qmlx_lsp.errors import TemplateError

Messages = Sequence[Mapping[str, Any]]
# What a template can raise for messages that it was not written for. Jinja promises nothing narrower.
REFUSALS = (
    jinja2.TemplateError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError,
)  # fmt: skip


class Template(Protocol):
    """A chat template that can be rendered."""

    def render(self, messages: Messages, variables: Mapping[str, Any], *, generate: bool, day: date) -> str:
        """The text of a conversation. ``generate`` asks for the head of the reply that is to come. ``variables`` are
        the template's own switches; it ignores those that it does not know.

        Raises:
            TemplateError: the template refuses these messages.
        """


class JinjaTemplate:
    """The template ``source`` of the model ``name``. ``tokens`` are the texts that templates know by name, such as
    ``bos_token``. May be used on any thread.

    Raises:
        TemplateError: ``source`` is not valid Jinja.
    """

    def __init__(self, name: str, source: str, tokens: Mapping[str, str]) -> None:
        self._name = name
        self._tokens = dict(tokens)
        try:
            self._template = _ENVIRONMENT.from_string(source)
        except (jinja2.TemplateError, RecursionError, SyntaxError) as error:
            raise TemplateError(f"The chat template of {name} is not valid: {_one_line(error)}.") from error

    def __repr__(self) -> str:
        return f"<JinjaTemplate of {self._name}>"

    def render(self, messages: Messages, variables: Mapping[str, Any], *, generate: bool, day: date) -> str:
        given = {"tools": None, "documents": None, **self._tokens, **variables}
        try:
            return self._template.render(
                given, messages=[_aliased(m) for m in messages], add_generation_prompt=generate,
                strftime_now=_clock(day),
            )  # fmt: skip
        except REFUSALS as error:
            said = _one_line(error)
            raise TemplateError(
                f"The chat template of {self._name} does not render a conversation: {said}."
            ) from error


def _one_line(error: Exception) -> str:
    return (" ".join(str(error).split()) or type(error).__name__)[:300].rstrip(".")


def _aliased(message: Mapping[str, Any]) -> dict[str, Any]:
    """``message`` with its thinking under each of the names that templates look for."""
    given = {key: value for key, value in message.items() if value is not None}
    thought = given.get("reasoning_content")
    return given if thought is None else {"thinking": thought, "reasoning": thought, **given}


def _clock(day: date) -> Callable[[str], str]:
    """``strftime`` for ``day`` in English, whatever locale the process has been given."""
    month, weekday = _MONTHS[day.month - 1], _WEEKDAYS[day.weekday()]
    english = {
        "%B": month, "%b": month[:3], "%h": month[:3], "%A": weekday, "%a": weekday[:3], "%p": "AM",
        "%c": f"{weekday[:3]} {month[:3]} {day.day:2} 00:00:00 {day.year}", "%x": f"{day:%m/%d/%y}", "%X": "00:00:00",
    }  # fmt: skip
    at_midnight = datetime.combine(day, time())

    def written(form: str) -> str:
        return at_midnight.strftime(_DIRECTIVE.sub(lambda found: english.get(found[0], found[0]), form))

    return written


_DIRECTIVE = re.compile(r"%.")
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _to_json(
    value: Any, ensure_ascii: Any = False, indent: Any = None, separators: Any = None, sort_keys: Any = False
) -> str:
    """Without Jinja's own escaping of HTML, which models are not trained on."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


class _Generation(Extension):
    """``{% generation %}`` marks what a model is trained on; its content is rendered like any other."""

    tags = {"generation"}  # noqa: RUF012 - Jinja's own declaration

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> ImmutableSandboxedEnvironment:
    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols], autoescape=False
    )
    made.filters["tojson"] = _to_json
    made.globals["raise_exception"] = _raise_exception
    return made


_ENVIRONMENT = _environment()
