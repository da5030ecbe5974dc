"""Runs every example of the guides in docs/, in order, in a folder with the sample texts. The language of a code block selects its check:

    sh       the commands must succeed; all blocks of a page run in the same folder
    console  the lines after `$ COMMAND` must be the output of COMMAND; ... matches any text
    c        the program is compiled, linked with the shared library and run
    python   the code is run; all blocks of a page share their variables
    text     the text must be the output of the preceding block of C or Python

Of README.md, only the Python blocks are run, because its commands install the project. Python blocks that require PyTorch or transformers are
skipped if these are missing. Named models are replaced with small test models.
"""
import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
import wave
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("start", "attend", "run-models", "prune", "how-to", "comparison")
README = "../README"
REPLACED = {'"gpt2"': repr(str(ROOT / "tests/golden/data/models/gpt2-tiny")),
            "50258, 50259, 50359, 50363": "396, 5, 6, 7", "], 200, features": "], 20, features",  # fit the small model
            "--language de --task translate": "--language en"}
OPTIONAL = ("torch", "transformers")
MIN = 40  # the number of blocks that require no optional module
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def replaced(code):
    for text, other in REPLACED.items():
        code = code.replace(text, other)
    return code


class Page:
    def __init__(self, name):
        self.name, self.names, self.ran, self.skipped, self.faults = name, {}, 0, [], []
        self.printed = None  # the output of the last block of C or Python

    def shell(self, code, number):
        code = replaced(code)
        done = subprocess.run(["sh", "-euc", code], check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode:
            self.faults.append(f"{self.name}, block {number}: exit status {done.returncode}: {done.stderr}")
        return done.stdout

    def check_output(self, wanted, got, number):
        pattern = ".*?".join(re.escape(part) for part in wanted.strip().split("..."))
        if not re.fullmatch(pattern, got.strip(), re.DOTALL):
            self.faults.append(f"{self.name}, block {number}: the output must be\n{wanted}(got\n{got})")

    def console(self, code, number):
        for command, wanted in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", code, re.MULTILINE):
            self.check_output(wanted, self.shell(command, number), number)

    def c(self, code, number):
        Path("example.c").write_text(code, encoding="utf-8")
        folder = Path(os.environ["MHA_LIB"]).parent
        self.printed = self.shell(f'"$CC" -std=c11 -Wall -Werror -I"{ROOT}/include" example.c "$MHA_LIB" -Wl,-rpath,"{folder}" -o example && ./example',
                                  number)

    def python(self, code, number):
        code = replaced(code)
        printed, self.printed = io.StringIO(), None
        try:
            with contextlib.redirect_stdout(printed):
                exec(compile(code, f"docs/{self.name}.md, block {number}", "exec"), self.names)
        except ModuleNotFoundError as missing:
            if missing.name not in OPTIONAL:
                raise
            self.skipped.append(f"skipped: docs/{self.name}.md, block {number}: {missing}")
            return
        self.printed = printed.getvalue()

    def text(self, code, number):
        if self.printed is None:
            self.skipped.append(f"skipped: docs/{self.name}.md, block {number}: the preceding block was not run")
        else:
            self.check_output(code, self.printed, number)

    def run(self):
        for number, (language, code) in enumerate(BLOCK.findall((ROOT / f"docs/{self.name}.md").read_text(encoding="utf-8"))):
            if self.name == README and language != "python":
                continue
            check = {"sh": self.shell, "console": self.console, "c": self.c, "python": self.python, "text": self.text}.get(language)
            if check is None:
                self.faults.append(f"{self.name}, block {number}: the language must be sh, console, c, python or text (got {language!r})")
                continue
            before = len(self.skipped)
            check(code, number)
            self.ran += len(self.skipped) == before


def write_speech(name):
    """Writes 0.4 s of sound."""
    with wave.open(name, "wb") as file:
        file.setparams((1, 2, 16000, 0, "NONE", ""))
        file.writeframes(bytes(range(256)) * 50)


def main():
    pages, here = [], os.getcwd()
    with tempfile.TemporaryDirectory() as place:
        os.environ["PATH"] = f"{place}/bin:{os.environ['PATH']}"
        Path(place, "bin").mkdir()
        Path(place, "bin/mha").symlink_to(os.environ["MHA"])
        for name in (*PAGES, README):
            folder = Path(place, Path(name).name)
            folder.mkdir()
            for text in (ROOT / "share/mha/texts").glob("*.txt"):
                (folder / text.name).symlink_to(text)
            os.chdir(folder)
            write_speech("talk.wav")
            Path("whisper-small").symlink_to(ROOT / "tests/golden/data/seq2seq/whisper")
            pages.append(Page(name))
            try:
                pages[-1].run()
            finally:
                os.chdir(here)
    faults, ran = [fault for page in pages for fault in page.faults], sum(page.ran for page in pages)
    if ran < MIN:
        faults.append(f"at least {MIN} blocks must be run (got {ran})")
    for line in [*(skipped for page in pages for skipped in page.skipped), *faults, f"{ran} blocks were run"]:
        print(line)
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
