"""A figure of the results of bench/compare.py: for each row one bar per peer, as long as its share of the machine's limit."""
from html import escape

COLOURS = {"mha": "#1b6ca8", "torch": "#e07a5f", "torch folded": "#f2b39f", "onnxruntime MHA": "#81b29a",
           "onnxruntime GQA": "#b7d5c4", "ggml": "#8d7fa8"}
LEFT, BAR, GAP, SCALE, TOP = 170, 13, 14, 480, 70  # pixels; SCALE is 100 %


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
        yield f'<rect x="{x}" y="34" width="10" height="10" fill="{COLOURS[name]}"/>'
        yield _text(x + 14, 43, name)
        x += 30 + 7 * len(name)


def _row(result, y):
    name = result["row"] if result["dtype"] == "f32" else f"{result['row']} {result['dtype']}"
    yield _text(LEFT - 8, y + BAR - 2, name, 'text-anchor="end" font-weight="bold"')
    for who, call in result["calls"].items():
        width = min(SCALE * call["share"], SCALE * 1.1)
        ms = call["best ms"]
        label = f"{ms:.2f} ms" if ms >= 0.1 else f"{1e3 * ms:.1f} µs"
        yield f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR - 2}" fill="{COLOURS[who]}"/>'
        yield _text(LEFT + width + 4, y + BAR - 3, label, 'fill="#333" font-size="10"')
        y += BAR


def write(path, results, title):
    parts, y = [], TOP
    for result in results:
        parts += _row(result, y)
        y += BAR * max(1, len(result["calls"])) + GAP
    present = [name for name in COLOURS if any(name in r["calls"] for r in results)]
    head = [_text(LEFT, 20, f"Share of the machine's limit: {title}", 'font-size="14" font-weight="bold"')]
    body = "\n".join(head + list(_legend(present)) + list(_grid(y - GAP)) + parts)
    with open(path, "w", encoding="utf-8") as out:
        out.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + SCALE + 100}" height="{y}" '
                  f'font-family="sans-serif" font-size="12">\n<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n')
