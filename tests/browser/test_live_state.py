"""Tests the state in the address of the page of mha live, `mha live --state`, and the commands of each view in Chromium: a page with a
state shows the same numbers, the program confirms them, and hostile states change nothing."""
import json
import os
import subprocess
import unittest
from pathlib import Path

import numpy as np
from live_page import TEXT, LivePage, program  # imported first: skips the test if Chromium is not installed

MODELS = Path(__file__).resolve().parents[1] / "golden/data/models"


class State(LivePage):
    def write_page(self, state, name="state.html"):
        page = Path(self.folder.name, name)
        subprocess.run([os.environ["MHA"], "live", "-q", "--force", "--state", state, "-o", page], check=True)
        return page

    def commands(self):
        """The commands of the views, by name."""
        return dict(self.run_js("return [...document.querySelectorAll('#commands dt')].map((e) => [e.textContent, e.nextElementSibling.firstChild.textContent])"))

    def words(self, start):
        name = next(name for name in self.commands() if name.startswith(start))
        self.run_js("document.getElementById('command').textContent = arguments[0]", self.commands()[name])
        return self.command()

    def said(self, start):
        """Runs the command of a view."""
        words = self.words(start)
        return json.loads(program(words[0], "--json", *words[1:]))

    def confirm_effects(self):
        """The effects on the page must be those of its command."""
        said = {item["head"]: item["effect"] for item in self.said("The effects of all heads")["effects"]}
        shown = self.run_js("""return cells.map((cell, n) => cell && [nameOf(n), cell.querySelector('.amount').textContent,
            model.info.logits ? model.mha.effect(side(), n) : null]).filter(Boolean)""")
        self.assertEqual([name for name, *_ in shown], list(said))
        for name, text, effect in shown:
            self.assertAlmostEqual(float(text.replace("−", "-")), said[name], delta=6e-4 + 1e-2 * said[name], msg=name)
            if effect is not None:
                self.assertAlmostEqual(effect, said[name], delta=1e-4 * max(1, said[name]), msg=name)

    def confirm_steps(self):
        """All numbers of the steps on the page must be those of its command."""
        said = self.said("The steps of head")["steps"]
        shown = self.run_js("""const s = model.mha.steps(side(), layerOf(state.head), headOf(state.head), seenNow.at);
            return { at: seenNow.at, head: nameOf(state.head), q: [...s.q], out: [...s.out], keys: s.keys.map(({ score, k, v }) => [score, ...k, ...v]) }""")
        self.assertEqual([shown["head"], shown["at"]], [said["head"], said["at"]])
        np.testing.assert_allclose(shown["q"], said["q"], atol=2e-5)
        np.testing.assert_allclose(shown["out"], said["output"], atol=2e-5)
        np.testing.assert_allclose(shown["keys"], [[key["score"], *key["k"], *key["v"]] for key in said["keys"]], atol=5e-5)
        rows = self.run_js("return [...document.querySelectorAll('#steps tbody tr')].map((r) => [Number(r.dataset.key), ...[...r.children].slice(1).map((c) => c.textContent)])")
        for key, *texts in rows:
            score, weight, v = (said["keys"][key][name] for name in ("score", "weight", "v"))
            for text, value in zip(texts, (score, weight, np.linalg.norm(v), weight * np.linalg.norm(v))):
                self.assertAlmostEqual(float(text.replace("−", "-")), value, delta=6e-4 + 1e-2 * abs(value))

    def test_a_page_opens_with_a_state(self):
        self.open()
        self.switch((0, 7)).click()
        self.all("#tokens button")[5].click()
        self.one("#lens summary").click()
        self.one("#every-number").click()
        self.settle()
        self.wait("return location.hash === toFragment() && location.hash.includes('view=lens,every')")
        address, logits = self.run_js("return location.href"), self.logits(1)
        self.open(page=self.write_page(address))
        self.assertEqual(self.logits(1), logits)
        self.assertEqual(self.run_js("return toFragment()"), "#" + address.partition("#")[2])
        self.assertTrue(self.run_js("return document.getElementById('lens').open"))
        self.assertEqual(self.one("#card-title").text, "Layer 0, head 7: off")
        self.confirm()
        self.wait("return location.hash === toFragment()")
        self.open("#text=Count", self.page.with_name("state.html"))  # the address precedes the state of the page
        self.assertEqual(self.one("#text").get_attribute("value"), "Count")
        self.assertFalse(self.run_js("return document.getElementById('lens').open"))
        self.assert_quiet()

    def test_hostile_states(self):
        for state in ("#text=a&gates=9.9:0,x,0.0:7,-1.0:0,0.1:&at=99999&head=7.7&view=__proto__,lens2&edges=all:9999-1,7:1-1&site=%3Cb%3E",
                      "text=%3C/script%3E%3Cimg%20src=x%20onerror=alert(1)%3E&mean=2&head=constructor&__proto__=1", "#text=&gates=0.0:0&view=lens"):
            self.open(page=self.write_page(state))
            self.assertEqual(self.run_js("return document.querySelectorAll('img').length"), 0)
            if self.run_js("return seenNow.tokens.length"):
                self.confirm()
                self.assertFalse(self.run_js("return isChanged()"))
            self.assert_quiet()

    def test_every_view_has_a_command(self):
        self.open("#text=" + TEXT.replace(" ", "%20") + "&gates=0.7:0&head=1.1&view=lens")
        words = self.words("The map of head 1.1")
        file = Path(self.folder.name, "head.safetensors")
        words[words.index("-o") + 1] = str(file)
        program(words[0], "--force", "-q", *words[1:])
        content = file.read_bytes()
        length = int.from_bytes(content[:8], "little")
        tensor = json.loads(content[8:8 + length])["attn.1.1"]
        data = content[8 + length:][tensor["data_offsets"][0]:tensor["data_offsets"][1]]
        shown = self.run_js("const n = seenNow.tokens.length; return [...seenNow.maps.subarray(state.head * n * n, (state.head + 1) * n * n)]")
        np.testing.assert_allclose(shown, np.frombuffer(data, np.float32), atol=1e-5)
        self.confirm_effects()
        self.confirm_steps()
        words = self.words("Logit lens")
        said = json.loads(program(words[0], "--json", *words[1:]))
        for entry, row in enumerate(self.run_js("return model.mha.lens(seenNow.at)")):
            top = said["top"][entry][self.run_js("return seenNow.at")]
            self.assertEqual(row["ids"], [item["id"] for item in top[:3]])
            self.assertAlmostEqual(row["nats"], said["kl"][entry][self.run_js("return seenNow.at")], delta=1e-3)
        self.run_js("const e = document.getElementById('length'); e.value = 5; e.dispatchEvent(new Event('input'))")
        words = self.words("Continuation")
        said = program(words[0], "-q", *words[1:])
        self.one("#continue").click()
        self.wait("return document.body.dataset.written")
        self.assertEqual(self.run_js("return document.getElementById('text-0').textContent").removeprefix(TEXT).replace("<|endoftext|>", ""), said.rstrip("\n"))
        self.assert_quiet()

    def test_continuation_with_changes(self):
        """The command of the continuation with heads off gives the text of the page. Means and removed edges have no such command."""
        start = "#text=" + TEXT.replace(" ", "%20")
        self.open(start + "&gates=0.7:0,1.1:0.5")
        self.run_js("const e = document.getElementById('length'); e.value = 9; e.dispatchEvent(new Event('input'))")
        words = self.words("Continuation with your changes")
        self.assertIn("0.7=0,1.1=0.5", words)
        said = program(words[0], "-q", *words[1:])
        self.one("#continue").click()
        self.wait("return document.body.dataset.written")
        self.assertEqual(self.run_js("return document.getElementById('text-1').textContent").removeprefix(TEXT).replace("<|endoftext|>", ""), said.rstrip("\n"))
        for changes in ("&gates=0.7:0&mean=1", "&gates=0.7:0&edges=1.1:8-3", ""):
            self.open(start + changes)
            self.assertNotIn("Continuation with your changes", self.commands())
        self.assert_quiet()

    def test_effects_and_steps_with_changes(self):
        """Gates, means, removed edges and an earlier token apply to the effects and the steps, on the page and in the commands."""
        start = "#text=" + TEXT.replace(" ", "%20")
        for changes in ("&head=0.3&mean=1", "&gates=0.7:0,1.2:0.5&mean=1&head=1.2&at=9", "&edges=1.1:12-3,0:12-1&gates=0.2:0&head=1.1&at=12&view=every"):
            self.open(start + changes)
            self.confirm_effects()
            self.confirm_steps()
        self.assert_quiet()

    def test_effects_and_steps_of_other_models(self):
        """A model without logits, and a pruned model, whose heads keep their numbers."""
        pruned = Path(self.folder.name, "pruned")
        program("prune", "-q", "--heads", "0.0,0.3,1.2", "-o", str(pruned))
        for model, text, head in ((pruned, TEXT, "1.3"), (MODELS / "bert-tiny", "the small dog", "1.0")):
            page = Path(self.folder.name, f"{model.name}.html")
            program("live", "-q", "-m", str(model), "-o", str(page), "--", text)
            self.open(f"#text={text.replace(' ', '%20')}&head={head}&gates=0.1:0", page)
            self.run_js("model.name = arguments[0]; update()", str(model))
            self.settle()
            self.confirm_effects()
            self.confirm_steps()
        self.assert_quiet()


if __name__ == "__main__":
    unittest.main()
