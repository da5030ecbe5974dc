"""Tests the state in the address of the page of mha live, `mha live --state`, and the commands of each view in Chromium: a page with a
state shows the same numbers, the program confirms them, and hostile states change nothing."""
import json
import os
import subprocess
import unittest
from pathlib import Path

import numpy as np
from live_page import TEXT, LivePage, program  # imported first: skips the test if Chromium is not installed


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
        words = self.words("Logit lens")
        said = json.loads(program(words[0], "--json", *words[1:]))
        for entry, row in enumerate(self.run_js("return model.mha.lens(seenNow.at)")):
            top = said["top"][entry][self.run_js("return seenNow.at")]
            self.assertEqual(row["ids"], [item["id"] for item in top[:3]])
        self.run_js("const e = document.getElementById('length'); e.value = 5; e.dispatchEvent(new Event('input'))")
        words = self.words("Continuation")
        said = program(words[0], "-q", *words[1:])
        self.one("#continue").click()
        self.wait("return document.body.dataset.written")
        self.assertEqual(self.run_js("return document.getElementById('text-0').textContent").removeprefix(TEXT).replace("<|endoftext|>", ""), said.rstrip("\n"))
        self.assert_quiet()


if __name__ == "__main__":
    unittest.main()
