"""hooks.py - adds the generated pages to the site: the C and Python interfaces, the walk-throughs, documents of the top folder, and files of
the source tree that pages link to. Links that leave docs/ are redirected to these pages, so every link is checked by `mkdocs build --strict`.

$MHA_DOCS_PROGRAM is the program that prints the walk-throughs.
"""
import os
import posixpath
import re
import sys
from pathlib import Path

from mkdocs.structure.files import File

sys.path.insert(0, str(Path(__file__).resolve().parent))
from c_reference import ROOT, Pages, groups
from tour_pages import Tours

LINK = re.compile(r"(\]\()([^)\s#:]+)((?:#[^)\s]*)?\))")
LANGUAGES = {".c": "c", ".h": "c", ".py": "python", ".sh": "sh", ".cmake": "cmake", ".js": "javascript", ".rb": "ruby",
             ".spec": "text", "": "bash"}
PYTHON = {"mha": "The package `mha`", "mha.torch": "PyTorch: `mha.torch`", "mha.transformers": "transformers: `mha.transformers`"}

_reference = Pages()
_texts = {}  # {page: its Markdown} of the generated pages
_origin = {}  # {page: the file of the source tree that its links are relative to}
_page_of = {}  # {file of the source tree: its page}


def on_config(config):
    program = os.environ.get("MHA_DOCS_PROGRAM")
    if not program:
        raise RuntimeError("MHA_DOCS_PROGRAM must name the program mha; ./run docs sets it")
    tours = Tours(program, _reference)
    _add("c/index.md", _reference.index())
    for header in _reference.headers:
        _add(f"c/{header}.md", _reference.page(header), f"include/mha/{header}.h")
    for module, title in PYTHON.items():
        _add(f"python/{module}.md", f"# {title}\n\n::: {module}\n" + _members(module))
    figures = Path(config.site_dir).parent / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    tours.interactive(str(figures / "all.html"))
    for tour in tours.all:
        name = tour["name"]
        drawn = tours.figure(name, str(figures / f"{name}.svg"))
        layer = f"../layers/{name}.md" if (ROOT / f"docs/layers/{name}.md").exists() else None
        text = tours.page(name, tour["summary"], (f"{name}.svg", drawn) if drawn else None, layer)
        _add(f"tours/{name}.md", text)
    for name in "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md":
        _add(f"project/{name}", (ROOT / name).read_text(encoding="utf-8"), name)
    _navigation(config.nav, [f"tours/{t['name']}.md" for t in tours.all])
    return config


def _add(page, text, origin=None):
    """Adds a generated page; links in it are relative to `origin`, by default to the page as a file of docs/."""
    _texts[page] = text
    if origin:
        _page_of[origin] = page
    _origin[page] = origin if origin and origin.endswith(".md") else f"docs/{page}"


def _members(module):
    """Returns the options of mkdocstrings that select the public names of a module."""
    text = (ROOT / "python" / (module.replace(".", "/") + ("/__init__.py" if module == "mha" else ".py"))).read_text(encoding="utf-8")
    listed = re.search(r"(?s)__all__ = \[(.*?)\]", text)
    names = re.findall(r'"(\w+)"', listed[1]) if listed else re.findall(r"(?m)^(?:def|class) ([a-z]\w*)", text)
    return f"    options:\n      members: [{', '.join(names)}]\n"


def _navigation(nav, tours):
    """Adds the generated pages to the sections that list them."""
    sections = {name: pages for entry in nav for name, pages in entry.items()}
    sections["Step by step"] += tours
    for entry in sections["Reference"]:
        if "C" in entry:
            entry["C"] += ["c/index.md", *({group: [f"c/{h}.md" for h in headers]} for group, headers in groups())]
        elif "Python" in entry:
            entry["Python"] += [f"python/{module}.md" for module in PYTHON]
    sections["Background"] += [f"project/{name}" for name in ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")]


def _target(page, link):
    """Returns the path in the source tree that a link of a page names; None if it is a page of docs/."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(_origin.get(page, f"docs/{page}")), link))
    return None if path.startswith("docs/") and page not in _texts else path


def _source_page(path):
    """Adds the page of a file or folder of the source tree; returns its Markdown."""
    file = ROOT / path
    if file.is_dir():
        names = sorted(str(p.relative_to(file)) for p in file.rglob("*") if p.is_file())
        shown = [f"- [{n}]({posixpath.basename(path)}/{n})" if Path(n).suffix in LANGUAGES else f"- {n}" for n in names]
        text = f"# {path}/\n\n" + "\n".join(shown) + "\n"
    else:
        text = f"# {path}\n\n````{LANGUAGES.get(file.suffix, 'text')}\n{file.read_text(encoding='utf-8')}\n````\n"
    page = f"source/{path}.md"
    _texts[page], _origin[page], _page_of[path] = text, path, page
    return text


def on_files(files, config):
    texts = [(f.src_uri, f.content_string) for f in files if f.is_documentation_page()]
    texts += list(_texts.items())
    for page, text in texts:  # grows by the pages that are added
        for _, link, _ in LINK.findall(text):
            path = _target(page, link)
            if path and not path.startswith("docs/") and path not in _page_of and (ROOT / path).exists():
                texts.append((f"source/{path}.md", _source_page(path)))
    for page, text in _texts.items():
        files.append(File.generated(config, page, content=text))
    for figure in sorted((Path(config.site_dir).parent / "figures").iterdir()):
        files.append(File.generated(config, f"tours/{figure.name}", abs_src_path=str(figure)))
    return files


def on_page_markdown(markdown, page, config, files):
    def redirected(m):
        path = _target(page.file.src_uri, m[2])
        if path is None:
            return m[0]
        to = _page_of.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
        return m[0] if to is None else m[1] + posixpath.relpath(to, posixpath.dirname(page.file.src_uri) or ".") + m[3]

    return LINK.sub(redirected, markdown)
