"""Tests the page of mha live in Chromium: its numbers must be those of the program, every control must work, hostile texts
and folders must stay harmless, and the page must request nothing."""
import json
import os
import shutil
import subprocess
import unittest
from pathlib import Path

from live_page import TEXT, LivePage  # imported first: skips the test if Chromium is not installed
from page_case import NAMELESS
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

MODELS = Path(__file__).resolve().parents[1] / "golden/data/models"
HOSTILE = "</script><img src=x onerror=alert(1)> <script>alert(2)</script> & \" onmouseover=alert(3) ' \u2028 <!-- [SEP] \U0001f600"
BYTES_MAX = 2_200_000


class Live(LivePage):
    def test_quiet_and_small(self):
        self.open()
        self.assertLessEqual(self.page.stat().st_size, BYTES_MAX)
        self.assertRegex(self.one("#summary").text, r"Model builtin \(llama, 2 layers of 8 heads\), 17 tokens in .* wasm128")
        print({name: self.run_js("return document.body.dataset[arguments[0]]", name) for name in ("openedMs", "updateMs", "effectsMs")})
        self.assert_quiet()

    def test_numbers_are_those_of_the_program(self):
        self.open()
        self.confirm()
        self.type("Count from 2 to 6: 2 3")
        self.confirm()
        self.assertEqual(len(self.all("#grid canvas")), 16)

    def test_switches(self):
        self.open()
        before = float(self.switch((0, 7)).text.split("\n")[-1].replace("−", "-"))
        self.switch((0, 7)).click()
        self.settle()
        self.assertEqual(self.switch((0, 7)).get_attribute("aria-checked"), "false")
        self.assertIn("0.7=0", self.confirm())
        self.assertRegex(self.switch((0, 7)).get_attribute("title"), r"^effect if it is on again: \d+\.\d{3}$")
        self.assertAlmostEqual(self.run_js("return model.mha.divergence()"), before, delta=1e-3 * max(1, before))
        self.assertIn("bits", self.one("#prediction-hint").text)
        self.assertEqual(self.one("#card-title").text, "Layer 0, head 7: off")
        self.choose("#mean", "mean")
        self.settle()
        self.assertIn("--mean", self.confirm())
        self.one("#undo").click()
        self.settle()
        self.assertEqual(self.switch((0, 7)).get_attribute("aria-checked"), "true")
        self.assertNotIn("--gates", self.confirm())
        self.assert_quiet()

    def test_gate_alone_and_layer(self):
        self.open()
        self.all("#grid .open")[9].click()
        self.settle()
        self.assertEqual(self.one("#card-title").text, "Layer 1, head 1: on")
        self.one("#gate").send_keys(Keys.ARROW_LEFT * 10)
        self.settle()
        self.assertEqual(self.one("#gate-value").text, "0.50")
        self.assertIn("1.1=0.5", self.confirm())
        self.one("#alone").click()
        self.settle()
        self.assertEqual(len(self.all("#grid .cell.off")), 7)
        self.confirm()
        self.one("#layer-off").click()
        self.settle()
        self.assertEqual(len(self.all("#grid .cell.off")), 8)
        self.one("#all-on").click()
        self.settle()
        self.assertEqual(self.one("#changed").text, "all heads on")

    def test_keys(self):
        self.open()
        first = self.all("#grid .open")[0]
        first.send_keys(Keys.ARROW_RIGHT)
        self.driver.switch_to.active_element.send_keys(Keys.ARROW_DOWN)
        self.settle()
        self.assertEqual(self.one("#card-title").text, "Layer 1, head 1: on")
        self.driver.switch_to.active_element.send_keys("x")
        self.settle()
        self.assertEqual(self.switch((1, 1)).get_attribute("aria-checked"), "false")
        self.driver.switch_to.active_element.send_keys("u")
        self.driver.switch_to.active_element.send_keys("a")
        self.settle()
        self.assertEqual(len(self.all("#grid .cell.off")), 7)
        ActionChains(self.driver).double_click(self.all("#grid .open")[9]).perform()
        self.settle()
        self.assertEqual(len(self.all("#grid .cell.off")), 0)
        self.one("body").send_keys("?")
        self.assertTrue(self.one("#help").is_displayed())
        self.one("#help button").click()
        self.one("#text").send_keys("x")  # in the text, a key is a letter
        self.settle()
        self.assertTrue(self.run_js("return state.text").endswith("redx"))

    def test_tokens(self):
        self.open()
        self.all("#tokens button")[7].click()
        self.settle()
        self.assertIn("--at", self.confirm())
        self.assertEqual(self.all("#tokens button")[7].get_attribute("aria-pressed"), "true")
        self.all("#tokens button")[7].click()
        self.settle()
        self.assertNotIn("--at", self.confirm())

    def test_lens(self):
        self.open()
        self.one("#lens summary").click()
        self.wait("return document.querySelectorAll('#lens tbody tr').length === 3")
        lens = self.run_js("return model.mha.lens(seenNow.at)")
        said = json.loads(subprocess.run([os.environ["MHA"], "logits", "--json", "--isa", "scalar", "--", TEXT], check=True, capture_output=True, text=True).stdout)
        self.assertEqual(lens[-1]["ids"], [item["id"] for item in said["top"][:3]])
        for p, item in zip(lens[-1]["probabilities"], said["top"]):
            self.assertAlmostEqual(p, item["probability"], delta=1e-4)
        self.assertEqual(lens[-1]["nats"], 0)
        self.assertGreater(lens[0]["nats"], lens[1]["nats"])
        shown = self.texts("#lens tbody tr:last-child td")
        self.assertEqual(shown[0], "output")
        self.assertTrue(shown[1].startswith(" key "), shown)
        self.assert_quiet()

    def test_map_and_steps(self):
        self.open()
        self.all("#grid .open")[9].click()
        self.one("#map").send_keys(Keys.ARROW_DOWN * 3)
        self.assertRegex(self.one("#map-tip").text, r"\(3\) → .* \(0\): ")
        ActionChains(self.driver).move_to_element(self.one("#map")).perform()
        self.assertRegex(self.one("#map-tip").text, r" → .*: [\d.e−]+$")
        rows = self.run_js("return [...document.querySelectorAll('#steps tbody tr')].map((r) => [...r.children].map((c) => c.textContent))")
        keys = self.run_js("return [...document.querySelectorAll('#steps tbody tr')].map((r) => Number(r.dataset.key))")
        weights = self.run_js("const n = seenNow.tokens.length; return arguments[0].map((j) => number(seenNow.maps[(state.head * n + seenNow.at) * n + j]))", keys)
        self.assertEqual([row[2] for row in rows], weights)
        self.one("#vectors summary").click()
        self.assertGreater(len(self.all("#vectors tbody tr")), 4)

    def test_hostile_text_stays_text(self):
        self.open()
        self.type(HOSTILE)
        self.assertEqual("".join(self.run_js("return seenNow.tokens.map((t) => t.text)")).replace("\ufffd", "")[:20], HOSTILE[:20])
        self.assertEqual(self.run_js("return document.querySelectorAll('img, #tokens script').length"), 0)
        self.confirm()
        self.one("#continue").click()
        self.wait("return document.body.dataset.written")
        page = Path(self.folder.name, "hostile.html")
        subprocess.run([os.environ["MHA"], "live", "-q", "-o", page, "--", HOSTILE], check=True)
        self.open(page=page)
        self.assertEqual(self.one("#text").get_attribute("value"), HOSTILE)
        self.type("")
        self.assertFalse(self.one("#top").is_displayed())
        self.assertFalse(self.one("#check").is_displayed())
        self.type("a")
        self.assertIn(" 1 token in ", self.one("#summary").text)
        self.type("a\u200d\u0301 b")
        shown = "".join(self.texts("#tokens button"))
        self.assertIn("U+200D", shown)
        self.assertIn("U+0301", shown)
        self.type("word " * 400)
        self.assertIn("are not shown", self.one("#summary").text)
        self.wait("return location.hash === toFragment() && location.hash.length < 2000")
        self.run_js("const e = document.getElementById('text'); e.value = String.fromCharCode(0xd800) + ' half'; e.dispatchEvent(new Event('input'))")
        self.settle()
        self.wait("return location.hash.includes('%EF%BF%BD%20half')")
        self.assert_quiet()

    def test_the_address(self):
        self.open()
        self.switch((1, 2)).click()
        self.all("#tokens button")[5].click()
        self.choose("#mean", "mean")
        self.settle()
        self.wait("return location.hash.includes('at=5') && location.hash === toFragment()")
        fragment = self.run_js("return location.hash")
        logits = self.logits(1)
        self.open(fragment)
        self.assertEqual(self.logits(1), logits)
        self.assertEqual(self.run_js("return toFragment()"), fragment)
        for bad in ("#text=%E0%A4%A&gates=1.1:0", "#text=a&gates=9.9:0,x,0.0:7,-1.0:0,0.1:&at=99999&head=7.7", "#" + "&" * 50):
            self.open(bad)
            self.confirm()
            self.assertFalse(self.run_js("return isChanged()"))
        self.assert_quiet()

    def test_continuation(self):
        self.open()
        self.switch((0, 7)).click()
        self.settle()
        self.one("#length").clear()
        self.one("#length").send_keys("12")
        self.one("#continue").click()
        self.wait("return document.body.dataset.written")
        said = subprocess.run([os.environ["MHA"], "generate", "-q", "-n", "12", "--isa", "scalar", "-p", TEXT], check=True, capture_output=True, text=True).stdout
        self.assertEqual(self.one("#text-0").text.replace("<|endoftext|>", "").strip(), (TEXT + said.rstrip("\n").removeprefix(TEXT)).strip())
        self.assertNotEqual(self.one("#text-1").text, self.one("#text-0").text)

    def load(self, folder):
        """Drops a folder on the page. Selenium cannot drop folders, so a script passes the chosen files as the entries of one."""
        self.run_js("const e = document.getElementById('folder'); e.removeAttribute('webkitdirectory'); e.value = ''; document.body.dataset.opening = ''")
        self.run_js("const e = document.getElementById('folder'); e.replaceWith(window.input = e.cloneNode())  // without the page's listener")
        self.one("#folder").send_keys("\n".join(str(path) for path in sorted(folder.iterdir())))
        self.run_js("""
            const files = [...window.input.files], lists = [files.slice(0, 2), files.slice(2), []];
            const entries = lists.map((list) => list.map((file) => ({ isFile: true, file: (done) => done(file) })));
            const folder = { isDirectory: true, name: arguments[0], createReader: () => ({ readEntries: (done) => done(entries.shift()) }) };
            const event = new Event('drop', { cancelable: true });
            event.dataTransfer = { items: [{ webkitGetAsEntry: () => folder }] };
            window.dispatchEvent(event);""", folder.name)
        self.wait("return document.body.dataset.opening === 'no'")
        self.settle()

    def copy(self, model, name):
        folder = Path(self.folder.name, name)
        folder.mkdir()
        for file in ("config.json", "tokenizer.json", "model.safetensors"):
            shutil.copy(MODELS / model / file, folder)
        return folder

    def test_another_folder(self):
        """A folder on this computer replaces the model: a decoder, an encoder with logits, and one without."""
        self.open()
        for model in ("gpt2-tiny", "bert-mlm-tiny"):
            folder = self.copy(model, model)
            self.load(folder)
            self.assertIn(f"Model {model}", self.one("#summary").text)
            self.run_js("model.name = arguments[0]; update()", str(folder))
            self.settle()
            self.confirm()
            self.switch((0, 1)).click()
            self.settle()
            self.confirm()
        self.load(self.copy("bert-tiny", "bert-tiny"))
        self.switch((0, 0)).click()
        self.settle()
        self.assertRegex(self.one("#prediction-hint").text, r"1 − cosine = [\d.e−]+\.")
        self.assert_quiet()

    def test_pruned_heads_keep_their_numbers(self):
        """The page names heads as the program does: by their numbers in the unpruned model."""
        folder = Path(self.folder.name, "pruned")
        subprocess.run([os.environ["MHA"], "prune", "-q", "--heads", "0.0,0.3,1.2", "-o", folder], check=True)
        page = Path(self.folder.name, "pruned.html")
        subprocess.run([os.environ["MHA"], "live", "-q", "-m", folder, "-o", page, "--", TEXT], check=True)
        self.open(page=page)
        self.assertEqual(self.texts("#grid .layer:first-child b"), ["0.1", "0.2", "0.4", "0.5", "0.6", "0.7"])
        self.switch((0, 5)).click()
        self.settle()
        self.run_js("model.name = arguments[0]; update()", str(folder))
        self.settle()
        self.assertIn("0.7=0", self.confirm())
        self.wait("return location.hash.includes('gates=0.7:0') && location.hash === toFragment()")
        self.open(self.run_js("return location.hash"), page)
        self.assertEqual(self.run_js("return gateList('=')"), ["0.7=0"])

    def test_the_limit_of_a_page(self):
        """A tensor that the model does not use makes the file larger than the limit."""
        folder = self.copy("gpt2-tiny", "large")
        content = (folder / "model.safetensors").read_bytes()
        length = int.from_bytes(content[:8], "little")
        header, most = json.loads(content[8:8 + length]), 128 << 20
        end = len(content) - 8 - length
        header["unused"] = {"dtype": "U8", "shape": [most], "data_offsets": [end, end + most]}
        text = json.dumps(header).encode()
        with open(folder / "model.safetensors", "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text + content[8 + length:])
            file.truncate(8 + len(text) + end + most)
        done = subprocess.run([os.environ["MHA"], "live", "-q", "-m", folder, "-o", folder / "page.html"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn(f"the files of the model must have at most {most} bytes", done.stderr)

    def test_hostile_folders(self):
        self.open()
        folder = self.copy("gpt2-tiny", "broken <b>model<i>")
        weights = (folder / "model.safetensors").read_bytes()
        for name, content, sentence in (("model.safetensors", weights[:5000], "model.safetensors: "),
                                        ("config.json", b"{", "config.json: "),
                                        ("tokenizer.json", b'{"model": {}}', "tokenizer.json: "),
                                        ("tokenizer.json", None, "the folder must contain tokenizer.json")):
            keep = (folder / name).read_bytes()
            (folder / name).unlink()
            if content is not None:
                (folder / name).write_bytes(content)
            self.load(folder)
            self.assertTrue(self.one("#problem").text.startswith(f"{folder.name}: {sentence}"), self.one("#problem").text)
            (folder / name).write_bytes(keep)
            self.assertIn("Model builtin", self.one("#summary").text)
            self.confirm()
        self.assert_quiet()

    def test_looks(self):
        self.open()
        self.assert_light_and_dark()
        self.assertEqual(self.run_js(NAMELESS), [])
        self.emulate()
        self.assert_fits()
        self.emulate()


if __name__ == "__main__":
    unittest.main()
