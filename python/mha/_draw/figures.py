"""Tables and maps of heads for notebooks, and plots through matplotlib, in the colors of the program's pages and figures."""
from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

# viridis, as in cli/page/color_scale.c
_VIRIDIS = bytes.fromhex("440154481467482576453781404688" "39558c33638d2d718e287d8e238a8d"
                         "1f968b20a38629af7f3dbc7456c667" "75d05495d840bade28dde318fde725")
_STOPS = np.frombuffer(_VIRIDIS, np.uint8).reshape(-1, 3).astype(np.float64)
_CELLS_MAX = 128  # of a map in a page, per side; larger maps are shown by plot()
_STYLE = "border-collapse:collapse;font:12px sans-serif"


def _color(position: float) -> str:
    """Returns the color at a position 0..1 of the scale, as the program draws it."""
    at = min(max(position, 0.0), 1.0) * (len(_STOPS) - 1)
    n = min(int(at), len(_STOPS) - 2)
    red, green, blue = (int(x + 0.5) for x in _STOPS[n] + (_STOPS[n + 1] - _STOPS[n]) * (at - n))
    return f"#{red:02x}{green:02x}{blue:02x}"


def _ink(color: str) -> str:
    """Returns the color of text on a color: black or white, whichever has more contrast."""
    parts = [int(color[n:n + 2], 16) / 255 for n in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return "#000" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 else "#fff"


def _cell(text: str, position: float, title: str) -> str:
    color = _color(position)
    return (f'<td style="background:{color};color:{_ink(color)};text-align:center;padding:3px 6px" title="{html.escape(title)}">'
            f"{text}</td>")


def intervals(low: np.ndarray, high: np.ndarray) -> list[list[str]]:
    """Returns the intervals of a table as text."""
    return [[f"{a:.3g} .. {b:.3g}" for a, b in zip(*rows)] for rows in zip(low, high)]


def html_table(values: np.ndarray, caption: str, notes: Sequence[Sequence[str]]) -> str:
    """Returns an HTML table [layers, heads]. Each cell shows a value and a note; its color ranges from the lowest to the highest value."""
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    rows = []
    for layer, line in enumerate(values):
        cells = [f'<th style="text-align:right;padding-right:6px">layer {layer}</th>']
        for head, x in enumerate(line):
            if not math.isfinite(x):
                cells.append("<td></td>")
                continue
            note = notes[layer][head] if head < len(notes[layer]) else ""
            cells.append(_cell(f"{x:.4g}<br><small>{html.escape(note)}</small>", (x - low) / (high - low) if high > low else 0.5,
                               f"layer {layer} head {head}: {x:.9g}"))
        rows.append(f"<tr>{''.join(cells)}</tr>")
    heads = "".join(f"<th>head {n}</th>" for n in range(values.shape[1]))
    return f'<table style="{_STYLE}"><caption>{html.escape(caption)}</caption><tr><th></th>{heads}</tr>{"".join(rows)}</table>'


def html_rows(caption: str, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Returns a table with named columns as HTML."""
    def shown(x: Any) -> str:
        return html.escape(f"{x:,}" if isinstance(x, int) else f"{x:.6g}" if isinstance(x, float) else str(x))
    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    body = "".join("<tr>" + "".join(f'<td style="padding:2px 8px">{shown(x)}</td>' for x in row) + "</tr>" for row in rows)
    return f'<table style="{_STYLE}"><caption>{html.escape(caption)}</caption><tr>{head}</tr>{body}</table>'


def html_map(values: np.ndarray, tokens: Sequence[str], title: str) -> str:
    """Returns an attention map as HTML: one cell per pair of tokens, colored by the square root of the weight."""
    n = min(len(values), _CELLS_MAX)
    names = [html.escape(t) for t in tokens[:n]]
    top = "".join(f'<th style="writing-mode:vertical-rl;font-weight:normal">{t}</th>' for t in names)
    rows = []
    for q in range(n):
        cells = "".join(f'<td style="background:{_color(math.sqrt(max(float(values[q, k]), 0.0)))};width:14px;height:14px" '
                        f'title="{names[q]} to {names[k]}: {float(values[q, k]):.9g}"></td>' for k in range(n))
        rows.append(f'<tr><th style="text-align:right;font-weight:normal;padding-right:4px">{names[q]}</th>{cells}</tr>')
    more = "" if n == len(values) else f" (the first {n} of {len(values)} tokens)"
    return f'<table style="{_STYLE}"><caption>{html.escape(title + more)}</caption><tr><th></th>{top}</tr>{"".join(rows)}</table>'


# ---- matplotlib ----

def _axes(ax: Any, title: str) -> Any:
    if ax is None:
        import matplotlib.pyplot
        ax = matplotlib.pyplot.subplots()[1]
    ax.set_title(title)
    return ax


def _colors() -> Any:
    from matplotlib.colors import LinearSegmentedColormap
    return LinearSegmentedColormap.from_list("mha", _STOPS / 255)


def plot_map(values: np.ndarray, tokens: Sequence[str], title: str, ax: Any) -> Any:
    """Draws an attention map, colored by the square root of the weight."""
    from matplotlib.colors import PowerNorm
    ax = _axes(ax, title)
    ax.imshow(values, cmap=_colors(), norm=PowerNorm(0.5, 0, 1))
    ax.set_xticks(range(len(tokens)), tokens, rotation=90)
    ax.set_yticks(range(len(tokens)), tokens)
    return ax


def plot_table(values: np.ndarray, title: str, notes: Sequence[Sequence[str]], ax: Any) -> Any:
    """Draws a table [layers, heads] with a note in each cell."""
    ax = _axes(ax, title)
    image = ax.imshow(values, cmap=_colors(), aspect="auto")
    for layer, line in enumerate(notes):
        for head, note in enumerate(line):
            position = image.norm(values[layer, head])
            ax.text(head, layer, note, ha="center", va="center", fontsize="small", color=_ink(_color(float(position))))
    ax.set_xlabel("head")
    ax.set_ylabel("layer")
    ax.figure.colorbar(image, ax=ax)
    return ax


def plot_scores(values: np.ndarray, low: np.ndarray, high: np.ndarray, title: str, ax: Any) -> Any:
    """Draws the scores of all heads as bars, highest first, with their intervals."""
    ax = _axes(ax, title)
    places = [p for p in np.ndindex(*values.shape) if math.isfinite(values[p])]
    places.sort(key=lambda p: -values[p])
    x = np.array([values[p] for p in places])
    errors = np.nan_to_num(np.abs(np.array([[values[p] - low[p] for p in places], [high[p] - values[p] for p in places]])))
    ax.bar(range(len(x)), x, yerr=errors)
    ax.set_xticks(range(len(x)), [f"{layer}.{head}" for layer, head in places], rotation=90)
    ax.set_xlabel("layer.head")
    return ax


def plot_line(x: Sequence[float], y: Sequence[float], xlabel: str, ylabel: str, ax: Any) -> Any:
    """Draws a curve."""
    ax = _axes(ax, "")
    ax.plot(x, y, marker=".")
    ax.set_xlabel(xlabel)
    ax.set_ylabel(ylabel)
    return ax


def plot_points(points: np.ndarray, names: Sequence[str], title: str, ax: Any) -> Any:
    """Draws named points."""
    ax = _axes(ax, title)
    ax.scatter(points[:, 0], points[:, 1])
    for (x, y), name in zip(points, names):
        ax.annotate(name, (x, y))
    return ax
