"""Draws charts: bars for the fraction of the machine's limit that each library reaches per row (bench/compare.py), and curves (bench/pruning.py,
bench/growth.py)."""
import math
from html import escape

COLORS = {"mha": "#1b6ca8", "torch": "#e07a5f", "torch folded": "#f2b39f", "onnxruntime MHA": "#81b29a",
           "onnxruntime GQA": "#b7d5c4", "ggml": "#8d7fa8"}
LEFT, BAR, GAP, SCALE, TOP = 170, 13, 14, 480, 70  # lengths [pixels]; SCALE is the length of a bar of 100 %


def _text(x, y, text, extra=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" {extra}>{escape(text)}</text>'


def _grid(height):
    for percent in range(0, 101, 20):
        x = LEFT + SCALE * percent / 100
        yield f'<line x1="{x}" x2="{x}" y1="{TOP - 6}" y2="{height}" stroke="#ddd"/>'
        yield _text(x, TOP - 10, f"{percent} %", 'text-anchor="middle" fill="#666"')


def _legend(names):
    x = LEFT
    for name in names:
        yield f'<rect x="{x}" y="34" width="10" height="10" fill="{COLORS[name]}"/>'
        yield _text(x + 14, 43, name)
        x += 30 + 7 * len(name)


def _row(result, y):
    name = result["row"] if result["dtype"] == "f32" else f"{result['row']} {result['dtype']}"
    yield _text(LEFT - 8, y + BAR - 2, name, 'text-anchor="end" font-weight="bold"')
    for who, call in result["calls"].items():
        width = min(SCALE * call["share"], SCALE * 1.1)
        ms = call["best ms"]
        label = f"{ms:.2f} ms" if ms >= 0.1 else f"{1e3 * ms:.1f} µs"
        yield f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR - 2}" fill="{COLORS[who]}"/>'
        yield _text(LEFT + width + 4, y + BAR - 3, label, 'fill="#333" font-size="10"')
        y += BAR


def _save(path, width, height, body):
    with open(path, "w", encoding="utf-8") as out:
        out.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
                  f'font-family="sans-serif" font-size="12">\n<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n')


def write(path, results, title):
    parts, y = [], TOP
    for result in results:
        parts += _row(result, y)
        y += BAR * max(1, len(result["calls"])) + GAP
    present = [name for name in COLORS if any(name in r["calls"] for r in results)]
    head = [_text(LEFT, 20, f"Fraction of the machine's limit: {title}", 'font-size="14" font-weight="bold"')]
    body = "\n".join(head + list(_legend(present)) + list(_grid(y - GAP)) + parts)
    _save(path, LEFT + SCALE + 100, y, body)


# ---- curves ----

STYLES = [("#1b6ca8", ""), ("#8d7fa8", ""), ("#e07a5f", "4 3"), ("#81b29a", "4 3")]
WIDE, HIGH, EDGE = 560, 300, 60


def _ticks(low, high):
    """Returns about five round values from low to high."""
    step = 10 ** len(str(int(high - low))) / 100 if high - low >= 1 else 0.01
    while (high - low) / step > 6:
        step *= 2 if str(step).lstrip("0.")[0] != "2" else 2.5
    first = -(-low // step)
    return [round((first + n) * step, 6) for n in range(int((high - low) / step) + 1) if (first + n) * step <= high]


def _decades(low, high):
    """Returns the values 1, 2 and 5 times a power of ten from low to high, or only the powers if there are many."""
    found = [step * 10.0**power for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1) for step in (1, 2, 5)]
    inside = [value for value in found if low <= value <= high]
    return inside if len(inside) <= 7 else [value for value in inside if f"{value:e}".startswith("1.0")]


def curves(path, title, lines, levels, across, up, log=False):
    """Draws `lines`, {name: [(x, y)]}, as curves, and `levels`, {name: y}, as horizontal lines; with `log`, both axes are logarithmic."""
    scale, unscale = (math.log, math.exp) if log else (lambda value: value, lambda value: value)
    xs = sorted({x for line in lines.values() for x, _ in line})
    ys = [scale(y) for line in lines.values() for _, y in line] + [scale(y) for y in levels.values()]
    margin = 0.05 * ((max(ys) - min(ys)) or 1)
    low, high, left, right = min(ys) - margin, max(ys) + margin, scale(xs[0]), scale(xs[-1])

    def place(x, y):
        return EDGE + WIDE * (scale(x) - left) / (right - left), TOP + HIGH * (high - scale(y)) / (high - low)

    parts = [_text(EDGE, 20, title, 'font-size="14" font-weight="bold"'), _text(EDGE, 38, up, 'fill="#666"')]
    for y in (_decades if log else _ticks)(unscale(low), unscale(high)):
        at = place(xs[0], y)[1]
        parts += [f'<line x1="{EDGE}" x2="{EDGE + WIDE}" y1="{at:.1f}" y2="{at:.1f}" stroke="#ddd"/>',
                  _text(EDGE - 8, at + 4, f"{y:g}", 'text-anchor="end" fill="#666"')]
    parts += [_text(place(x, unscale(low))[0], TOP + HIGH + 18, str(x), 'text-anchor="middle" fill="#666"') for x in xs]
    parts.append(_text(EDGE + WIDE / 2, TOP + HIGH + 36, across, 'text-anchor="middle" fill="#666"'))
    for (name, y), dash in zip(levels.items(), ["", "4 3"]):
        at = place(xs[0], y)[1]
        parts.append(f'<line x1="{EDGE}" x2="{EDGE + WIDE}" y1="{at:.1f}" y2="{at:.1f}" stroke="#999" stroke-dasharray="{dash or "none"}"/>')
        parts.append(_text(EDGE + WIDE + 8, at + 4, name, 'fill="#666"'))
    for n, (name, line) in enumerate(lines.items()):
        color, dash = STYLES[n]
        dots = [place(x, y) for x, y in line]
        parts.append(f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in dots)}" fill="none" stroke="{color}" stroke-width="2" '
                     f'stroke-dasharray="{dash or "none"}"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>' for x, y in dots]
        at = EDGE + n * 145
        parts.append(f'<line x1="{at}" x2="{at + 24}" y1="54" y2="54" stroke="{color}" stroke-width="2" stroke-dasharray="{dash or "none"}"/>')
        parts.append(_text(at + 30, 58, name))
    _save(path, EDGE + WIDE + 150, TOP + HIGH + 50, "\n".join(parts))
