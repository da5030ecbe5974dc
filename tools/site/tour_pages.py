"""tour_pages.py - writes the pages of the walk-throughs: the output of `mha tour NAME` step by step, with a figure if the tour has one."""
import json
import re
import subprocess


class Tours:
    def __init__(self, program, reference):
        self.program, self.reference = program, reference
        self.all = json.loads(self.run("tour", "--json"))["tours"]

    def run(self, *arguments):
        return subprocess.run([self.program, *arguments, "-q"], check=True, capture_output=True, text=True).stdout

    def figure(self, name, file):
        """Draws the weights of a tour, or else its first map or curve, to the file; returns the name of the tensor, or None. Only square maps
        can be drawn."""
        for choice in ["--tensor=weights"], []:
            command = [self.program, "tour", name, "--figure", file, "--force", *choice]
            done = subprocess.run(command, check=False, capture_output=True, text=True)
            if done.returncode == 0:
                return re.search(r"; (\S+)$", done.stderr.strip())[1]
        if "requires a tour with a map of weights or a curve" not in done.stderr:
            raise RuntimeError(done.stderr)
        return None

    def interactive(self, file):
        """Writes the page of all tours, with maps of every tensor, to the file."""
        self.run("tour", "all", "--html", file, "--force")

    def step(self, text):
        """Returns a step as Markdown: heading, explanation with the C functions, and the tensors as printed."""
        title, _, rest = text.partition("\n")
        told, _, shown = rest.partition("\n\n")
        told, _, calls = re.sub(r"\s*\n +", " ", told).strip().partition("-> ")
        out = [f"## {title}", "", self.reference.words(told.strip()), ""]
        if calls:
            out += ["Computed by " + self.reference.words(calls.strip()) + ".", ""]
        return "\n".join([*out, "```text", shown.strip("\n"), "```", ""] if shown.strip() else out)

    def page(self, name, summary, figure, layer):
        """Returns the page of a tour. `figure` is None or (address, tensor); `layer` is None or the address of its layer's page."""
        text = self.run("tour", name)
        body, _, example = text.partition("\nEquivalent program: ")
        _, *steps = re.split(r"(?m)^(?=\d+\. )", body)
        out = [f"# {name}", "", self.reference.words(summary[0].upper() + summary[1:]) + ".", "",
               f"This page is the output of `mha tour {name}`. `./check` compares its digits with those of PyTorch.", ""]
        out += ["[The page of all walk-throughs](all.html) shows one step at a time, with a map of every tensor.", ""]
        if layer:
            out += [f"The layer is described in [{name}]({layer}).", ""]
        if figure:
            out += [f"![The tensor {figure[1]} of this walk-through]({figure[0]})", ""]
        out += [self.step(s) for s in steps]
        if example:
            out += [f"An equivalent program is [{example.strip()}](../../{example.strip()}).", ""]
        return "\n".join(out)
