"""tools/fetch_wheel.py must download the file with the given hash from a package index, or leave no file and print the reason. The test
runs the index on this machine."""
import hashlib
import http.server
import os
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path

TOOL = Path(__file__).resolve().parents[2] / "tools" / "fetch_wheel.py"
WHEEL = bytes(range(256)) * 1000
RIGHT = hashlib.sha256(WHEEL).hexdigest()
WRONG = "0" * 64
PAGE = f"""<a href="/files/other-0.1-py3-none-any.whl#sha256={'1' * 64}">other</a>
<a href="/files/package-0.1-py3-none-any.whl#sha256={RIGHT}" data-requires-python="&gt;=3">right</a>
<a href="../../files/package-0.2-py3-none-any.whl#sha256={WRONG}">changed on the way</a>"""


class Index(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        answers = {"/simple/package/": PAGE.encode()} | {f"/files/package-0.{n}-py3-none-any.whl": WHEEL for n in (1, 2)}
        found = answers.get(self.path)
        self.send_response(404 if found is None else 200)
        self.end_headers()
        self.wfile.write(found or b"")

    def log_message(self, *_):
        pass


class FetchWheel(unittest.TestCase):
    def setUp(self):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Index)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.folder = tempfile.TemporaryDirectory()

    def tearDown(self):
        self.server.shutdown()
        self.server.server_close()
        self.folder.cleanup()

    def fetch(self, package, sha256):
        index = f"http://127.0.0.1:{self.server.server_port}/simple"
        environment = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")} | {"PIP_INDEX_URL": index}
        return subprocess.run([sys.executable, TOOL, package, sha256, self.folder.name], env=environment, text=True, capture_output=True)

    def files(self):
        return {path.name: path.read_bytes() for path in Path(self.folder.name).iterdir()}

    def test_right_file(self):
        done = self.fetch("package", RIGHT)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(self.files(), {"package-0.1-py3-none-any.whl": WHEEL})

    def refused(self, package, sha256, reason):
        done = self.fetch(package, sha256)
        self.assertEqual(done.returncode, 1)
        self.assertIn(reason, done.stderr)
        self.assertEqual(self.files(), {})

    def test_other_bytes(self):
        self.refused("package", WRONG, f"sha256 must be {WRONG} (got {RIGHT})")

    def test_not_listed(self):
        self.refused("package", "2" * 64, "does not list a file with sha256")

    def test_unknown_package(self):
        self.refused("missing", RIGHT, "404")


if __name__ == "__main__":
    unittest.main()
