"""A plot of step times as SVG text."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

WIDTH, HEIGHT = 720, 320
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 56, 48
_STYLE = """
text { font: 13px system-ui, sans-serif; fill: #333 }
.title { font-size: 16px; font-weight: 600 }
.axis { stroke: #999 } .grid { stroke: #ddd }
.real { stroke: #c2410c; fill: #c2410c } .cached { stroke: #0369a1; fill: #0369a1 }
.stretch { stroke-width: 4; stroke-linecap: round } .mean { stroke-dasharray: 5 4 }
text.real, text.cached { stroke: none }
@media (prefers-color-scheme: dark) {
  .paper { fill: #18181b } text { fill: #ddd } .grid { stroke: #333 }
  .real { stroke: #fb923c; fill: #fb923c } .cached { stroke: #38bdf8; fill: #38bdf8 }
}
"""


def step_time_svg(
    stretches: Sequence[tuple[bool, int, int, float]], real_ms: float, cached_ms: float, title: str
) -> str:
    """Draws stretches, given as tuples: is real, first step, number of steps, and mean milliseconds per step."""
    top_ms = max([real_ms, cached_ms, *(ms for *_, ms in stretches)]) * 1.08 or 1.0
    first = min((first for _, first, _, _ in stretches), default=0)
    last = max((first + steps for _, first, steps, _ in stretches), default=1)
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT

    def x(step: float) -> str:
        return f"{LEFT + (right - LEFT) * (step - first) / max(1, last - first):.1f}"

    def y(ms: float) -> str:
        return f"{bottom - (bottom - TOP) * ms / top_ms:.1f}"

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{html.escape(title)}">',
        f"<style>{_STYLE}</style>",
        f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        f'<text class="title" x="{LEFT}" y="22">{html.escape(title)}</text>',
        f'<text class="real" x="{LEFT}" y="42">with loading: {real_ms:.4g} ms</text>',
        f'<text class="cached" x="{LEFT + 220}" y="42">cached batches: {cached_ms:.4g} ms</text>',
    ]
    for ms in _ticks(top_ms):
        out.append(f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y(ms)}" y2="{y(ms)}"/>')
        out.append(f'<text x="{LEFT - 8}" y="{y(ms)}" dy="4" text-anchor="end">{ms:g}</text>')
    for step in _ticks(last - first):
        out.append(f'<text x="{x(first + step)}" y="{bottom + 18}" text-anchor="middle">{first + step:g}</text>')
    out.append(f'<line class="axis" x1="{LEFT}" x2="{right}" y1="{bottom}" y2="{bottom}"/>')
    out.append(f'<text x="{(LEFT + right) / 2}" y="{HEIGHT - 10}" text-anchor="middle">step</text>')
    out.append(f'<text transform="translate(16 {(TOP + bottom) / 2}) rotate(-90)" text-anchor="middle">ms per step</text>')
    for kind, mean in (("real", real_ms), ("cached", cached_ms)):
        out.append(f'<line class="{kind} mean" x1="{LEFT}" x2="{right}" y1="{y(mean)}" y2="{y(mean)}"/>')
    for is_real, start, steps, ms in stretches:
        kind, words = ("real", "with loading") if is_real else ("cached", "cached")
        out.append(
            f'<line class="{kind} stretch" x1="{x(start)}" x2="{x(start + steps)}" y1="{y(ms)}" y2="{y(ms)}">'
            f"<title>steps {start} to {start + steps - 1}, {words}: {ms:.4g} ms</title></line>"
        )
    out.append("</svg>\n")
    return "\n".join(out)


def _ticks(top: float) -> list[float]:
    """Returns about five round numbers from 0 to `top`."""
    if not top > 0:
        return [0]
    rough = top / 5
    scale = 10 ** math.floor(math.log10(rough))
    unit = next(factor * scale for factor in (1, 2, 5, 10) if factor * scale >= rough)
    return [i * unit for i in range(int(top / unit) + 1)]
