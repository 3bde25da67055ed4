"""A terminal's screen as a picture: SVG, with the colours it had and the cursor where it stood."""

from __future__ import annotations

import io
from dataclasses import dataclass

from rich.ansi import AnsiDecoder
from rich.console import Console
from rich.terminal_theme import TerminalTheme

# Fonts of the viewer's own: nothing is fetched when somebody looks at a picture.
FORMAT = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, "SF Mono", Menlo, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: ui-sans-serif, system-ui, sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
DARK = TerminalTheme(
    (20, 22, 27), (224, 226, 234),
    [(7, 8, 13), (255, 192, 185), (179, 246, 192), (252, 224, 148), (166, 219, 255), (255, 202, 255), (140, 248, 247),
     (238, 241, 248)],
    [(79, 82, 88), (255, 192, 185), (179, 246, 192), (252, 224, 148), (166, 219, 255), (255, 202, 255),
     (140, 248, 247), (238, 241, 248)],
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Screen:
    """``lines`` with escape sequences; ``cursor`` is its column and row, from 0, None when it is not shown."""

    lines: tuple[str, ...]
    columns: int
    cursor: tuple[int, int] | None = None


def svg(screen: Screen, title: str) -> str:
    """The same screen gives the same bytes."""
    console = Console(
        record=True, width=screen.columns, file=io.StringIO(), force_terminal=True, legacy_windows=False
    )
    decoder = AnsiDecoder()  # one, for colours go on from line to line
    for row, line in enumerate(screen.lines):
        text = decoder.decode_line(line)
        if screen.cursor is not None and screen.cursor[1] == row:
            column = screen.cursor[0]
            text.pad_right(max(0, column + 1 - len(text)))
            text.stylize("reverse", column, column + 1)
        console.print(text, no_wrap=True, overflow="ignore", crop=True, soft_wrap=False)
    return console.export_svg(title=title, theme=DARK, code_format=FORMAT, unique_id="screen")
