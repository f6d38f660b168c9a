"""Small HTML tables for the reprs that notebooks show."""

from __future__ import annotations

import html
from collections.abc import Mapping


def table(title: str, rows: Mapping[str, object]) -> str:
    """Returns a table of names and values, with everything escaped."""
    cells = "".join(
        f'<tr><th scope="row" align="left">{escaped(name)}</th><td align="left">{escaped(str(value))}</td></tr>'
        for name, value in rows.items()
    )
    return f"<table><caption>{escaped(title)}</caption><tbody>{cells}</tbody></table>"


def escaped(text: str) -> str:
    """Escapes markup. Unprintable characters are shown by their code, because they may reorder the text around them."""
    visible = (c if c.isprintable() else f"\\u{{{ord(c):x}}}" for c in text)
    return html.escape("".join(visible))
