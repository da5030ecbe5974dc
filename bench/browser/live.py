"""Measures the page of mha live in Chromium: from opening to the first result, from a key to the drawn page, and the effects of all heads.

    mha live -o live.html && python3 bench/browser/live.py live.html [--keys 60] [--openings 9] [--tokens 64] [--json]

A key is a key event of the browser: its time is that of the event, and the page is drawn when the frame after it has been painted. The
keys are typed with pauses: a letter at the end of a text of the given number of tokens, and Backspace, which removes it. Times are
in ms: the median and the minimum.
"""
import argparse
import statistics
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[2] / "tests/browser")]
from chromium import browser  # noqa: E402: exits if Chromium is not installed
from table import print_rows  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

WORDS = "One day Clara found a red key in the garden . She put the red key in a box . Then the dog ran to the tree and sat down . "
READY = "const d = document.body.dataset; return d.openedMs && d.measured === d.updated"
# A message arrives after the frame of the animation callback. The listener is called before those of the page.
LISTEN = """
window.paintTimes = [];
addEventListener('input', (event) => requestAnimationFrame(() => {
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = () => paintTimes.push(performance.now() - event.timeStamp);
  port2.postMessage(0);
}), true);
const text = document.getElementById('text');
text.value = arguments[0];
text.dispatchEvent(new Event('input'));
text.focus();
text.setSelectionRange(text.value.length, text.value.length);"""


def wait(driver, script):
    return WebDriverWait(driver, 60, poll_frequency=0.05).until(lambda d: d.execute_script(script))


def open_page(driver, page):
    driver.get("about:blank")
    driver.get(page.as_uri())
    wait(driver, READY)
    return float(driver.execute_script("return document.body.dataset.openedMs"))


def text_of(driver, tokens):
    """Returns the start of a text with this number of tokens, as the page counts them."""
    text = WORDS * (1 + tokens // 16)
    script = "const t = model.mha.encode(...arguments); update(); return arguments[0].slice(0, t[t.length - 1].end)"
    return driver.execute_script(script, text, tokens)


def press(driver, key):
    for kind, more in (("keyDown", {"text": key} if len(key) == 1 else {"windowsVirtualKeyCode": 8}), ("keyUp", {})):
        driver.execute_cdp_cmd("Input.dispatchKeyEvent", {"type": kind, "key": key, **more})


def type_keys(driver, keys):
    """Types a letter and deletes it, in turn. Returns a row per key: drawn, model and scripts, effects."""
    rows = []
    for n in range(keys):
        press(driver, "Backspace" if n % 2 else "abcdefghijklmno"[n // 2 % 15])
        wait(driver, READY)
        wait(driver, f"return paintTimes.length >= {n + 2}")
        rows.append([float(x) for x in driver.execute_script(
            "const d = document.body.dataset; return [paintTimes[paintTimes.length - 1], d.updateMs, d.effectsMs]")])
        time.sleep(0.05 + 0.0037 * (n % 7))  # other phases of the screen refresh
    return rows


def measure(page, o):
    driver = browser()
    try:
        opened = [open_page(driver, page) for _ in range(o.openings)]
        driver.execute_script(LISTEN, text_of(driver, o.tokens))
        wait(driver, READY)
        drawn, scripts, effects = zip(*type_keys(driver, o.keys))
    finally:
        driver.quit()
    return [(f"from opening to the first result ({o.openings} times)", opened), (f"from a key to the drawn page ({o.keys} times)", drawn),
            ("of it, the model and all scripts", scripts), ("effects of all heads", effects)]


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("page", type=Path)
    for name, default in (("keys", 60), ("openings", 9), ("tokens", 64)):
        options.add_argument(f"--{name}", type=int, default=default)
    options.add_argument("--json", action="store_true")
    o = options.parse_args()
    rows = [{"name": name, "median": statistics.median(times), "minimum": min(times)} for name, times in measure(o.page.resolve(), o)]
    print_rows(iter(rows), f"{o.tokens} tokens, in ms", ["", "median", "minimum"],
               lambda row: [row["name"], f"{row['median']:.1f}", f"{row['minimum']:.1f}"], o.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
