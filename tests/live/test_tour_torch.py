"""Compares the tensors that `mha tour` prints with PyTorch: the text must contain each tensor of the JSON output as torch prints it."""
import json
import os
import subprocess
import sys
import unittest

try:
    import torch
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)


def tour(*arguments):
    return subprocess.run([os.environ["MHA"], "tour", *arguments], check=True, capture_output=True, text=True).stdout


class Tour(unittest.TestCase):
    def check(self, columns, linewidth):
        os.environ["COLUMNS"] = str(columns)
        torch.set_printoptions(threshold=200, linewidth=linewidth)
        compared = 0
        for entry in json.loads(tour("all", "--json"))["tours"]:
            text = tour(entry["name"])
            for step in entry["steps"]:
                for tensor in step["tensors"]:
                    values = tensor["values"]
                    if None in values:  # the JSON contains null for infinity and NaN
                        continue
                    shape = f" {tensor['shape']}" if tensor["shape"] else ""
                    want = f"\n{tensor['name']}{shape}\n{torch.tensor(values).reshape(tensor['shape'])!s}\n"
                    self.assertIn(want, text, f"{entry['name']}: {tensor['name']}")
                    compared += 1
        self.assertGreater(compared, 100)

    def test_as_torch_prints(self):
        self.check(80, 80)

    def test_narrow(self):
        self.check(60, 56)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
