"""c_reference.py - generates the pages of the C interface: each public header becomes one page, with its comments as text and its declarations as code."""
import re
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEADERS = ROOT / "include/mha"
NAME = re.compile(r"`([^`]+)`|\bmha_\w+\b|\bMHA_\w+\b")
SPECIAL = re.compile(r"([\\`*_<>\[\]#|$~])")


def groups():
    """Returns [(group, [header])] in the order of mha.h. The headers of libmha_mpi are the last group, since mha.h does not include them."""
    found = []
    for line in (HEADERS / "mha.h").read_text(encoding="utf-8").splitlines():
        group, header = re.fullmatch(r"/\* ([a-z, ]+) \*/", line), re.match(r'#include "mha/(\w+)\.h"', line)
        if group:
            found.append((group[1].capitalize(), []))
        elif header:
            found[-1][1].append(header[1])
    return found + [("Several machines", ["cluster", "cluster_model"])]


def parts(text):
    """Yields (comment, code) for each comment at the start of a line and the declarations between it and the next comment."""
    start = re.compile(r"^/\*", re.MULTILINE)
    at = [m.start() for m in start.finditer(text)]
    for begin, end in zip(at, [*at[1:], len(text)]):
        close = text.index("*/", begin) + 2
        yield text[begin:close], text[close:end]


def plain(comment):
    """Returns the lines of a comment without its delimiters."""
    inner = comment.removeprefix("/*").removesuffix("*/").rstrip()
    return [re.sub(r"^ \* ?", "", line).rstrip() if n else line.strip() for n, line in enumerate(inner.split("\n"))]


def fenced(code):
    """Returns lines of C as a block of Markdown."""
    return "```c\n" + textwrap.dedent("\n".join(code)).strip("\n") + "\n```"


def declarations(code):
    """Returns code without include guards, includes, the linkage of C++ and the definition of MHA_API."""
    code = re.sub(r"#if defined\(__GNUC__\)\n.*?#endif\n", "", code, flags=re.DOTALL)
    code = re.sub(r'#ifdef __cplusplus\n.*?#endif\n', "", code, flags=re.DOTALL)
    code = re.sub(r"#(ifndef MHA_\w+_H|define MHA_\w+_H|endif|include [^\n]*)\n?", "", code)
    shorter = " " * len("MHA_API ")  # continuation lines of a prototype are aligned with its opening parenthesis
    return re.sub(r"\bMHA_API ([^;]*;)", lambda m: m[1].replace("\n" + shorter, "\n"), code).strip("\n")


def declared(code):
    """Returns the names that are declared at file scope."""
    outer = re.sub(r"\{[^{}]*(\{[^{}]*\}[^{}]*)*\}", "{}", re.sub(r"/\*.*?\*/", "", code, flags=re.DOTALL))
    functions = re.findall(r"\b(mha_\w+)\(", outer)
    types = re.findall(r"typedef [^;]*?\b(mha_\w+);", outer) + re.findall(r"\(\*(mha_\w+)\)\(", outer)
    return list(dict.fromkeys([*functions, *types, *re.findall(r"#define (MHA_\w+)", outer)]))


class Pages:
    """All pages of the reference; names in the text are linked to the page that declares them."""

    def __init__(self):
        self.headers = [h for _, headers in groups() for h in headers]
        self.texts = {h: (HEADERS / f"{h}.h").read_text(encoding="utf-8") for h in self.headers}
        self.home = {}
        for header in self.headers:
            for _, code in parts(self.texts[header]):
                for name in declared(declarations(code)):
                    self.home.setdefault(name, header)

    def words(self, text):
        """Escapes a line of text for Markdown and links the names in it."""
        out, at = "", 0
        for m in NAME.finditer(text):
            name = m[1] or m[0]
            link = f"[`{name}`]({self.home[name]}.md#{name.lower()})" if name in self.home else f"`{name}`"
            out += SPECIAL.sub(r"\\\1", text[at:m.start()]) + link
            at = m.end()
        return out + SPECIAL.sub(r"\\\1", text[at:])

    def prose(self, lines):
        """Returns a comment as Markdown: lines indented by four columns or more are code, lines that begin with - a list."""
        out, code = [], []
        for line in [*lines, ""]:
            if line.startswith("    ") and not re.match(r" +- ", line) and (code or not out or out[-1] == ""):
                code.append(line)
                continue
            if code and line:
                out += [fenced(code), ""]
                code = []
            elif code:
                code.append(line)
                continue
            item = re.match(r" *- (.*)", line)
            if item:
                out += ([""] if out and out[-1] and not out[-1].startswith("- ") and not out[-1].startswith("    ") else [])
                out.append("- " + self.words(item[1]))
            elif line.startswith("  ") and out and out[-1]:
                out.append("    " + self.words(line.strip()))
            else:
                out.append(self.words(line))
        if "".join(code).strip():
            out.append(fenced(code))
        return "\n".join(out)

    def section(self, comment, code):
        lines, code = plain(comment), declarations(code)
        heading = re.fullmatch(r"-+ (.*?) -+", lines[0]) if len(lines) == 1 else None
        names, body = declared(code), "\n\n" + fenced([code]) if code.strip() else ""
        anchors = "".join(f'<a id="{n.lower()}"></a>' for n in (names if heading else names[1:]))
        anchors = f"\n\n{anchors}" if anchors else ""
        if heading:
            return f"## {heading[1][0].upper()}{heading[1][1:]}{anchors}{body}"
        title = f"### `{names[0]}` {{ #{names[0].lower()} }}" if names else ""
        return f"{title}{anchors}\n\n{self.prose(lines)}{body}"

    def page(self, header):
        (comment, code), *rest = parts(self.texts[header])
        first, *lines = plain(comment)
        title, _, purpose = first.partition(" - ")
        lead = [purpose[:1].upper() + purpose[1:], *lines]
        out = [f"# mha/{title}", self.prose(lead)]
        code = declarations(code)
        if code.strip():
            out += ["".join(f'<a id="{n.lower()}"></a>' for n in declared(code)), fenced([code])]
        return "\n\n".join([*out, *(self.section(*part) for part in rest)]) + "\n"

    def index(self):
        lines = ["# C interface", "", "`#include <mha/mha.h>` includes every header below except `mha/cluster.h` and `mha/cluster_model.h`.",
                 "Start with [types](types.md), whose conventions apply to the whole interface, then read [attn](attn.md).", ""]
        for group, headers in groups():
            lines += [f"## {group}", "", "| header | contents |", "|---|---|"]
            for header in headers:
                purpose = plain(next(parts(self.texts[header]))[0])[0].partition(" - ")[2]
                lines.append(f"| [mha/{header}.h]({header}.md) | {self.words(purpose)} |")
            lines.append("")
        return "\n".join(lines)
