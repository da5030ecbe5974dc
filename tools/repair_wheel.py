#!/usr/bin/env python3
"""repair_wheel.py WHEEL FOLDER - copies the libraries that a wheel needs into it, like `auditwheel repair`, and writes it to FOLDER.

auditwheel leaves out libraries that its manylinux policy expects on every machine, among them those of X11, which cairo needs.
Minimal systems do not have these libraries, so only the C and C++ runtimes are left out here.
"""
import json
import sys
import tempfile
from pathlib import Path

import auditwheel.main
import auditwheel.policy
from auditwheel.libc import Libc

RUNTIMES = ("libanl.", "libatomic.", "libc.", "libdl.", "libgcc_s.", "libm.", "libmvec.", "libnsl.", "libpthread.", "libresolv.", "librt.",
            "libstdc++.", "libutil.")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    wheel, folder = sys.argv[1:]
    files = auditwheel.policy._POLICY_JSON_MAP
    policies = json.loads(files[Libc.GLIBC].read_text(encoding="utf-8"))
    for policy in policies:
        policy["lib_whitelist"] = [name for name in policy["lib_whitelist"] if name.startswith(RUNTIMES)]
    with tempfile.TemporaryDirectory() as place:
        files[Libc.GLIBC] = Path(place, "policy.json")
        files[Libc.GLIBC].write_text(json.dumps(policies), encoding="utf-8")
        sys.argv = ["auditwheel", "repair", "-w", folder, wheel]
        return auditwheel.main.main()


if __name__ == "__main__":
    sys.exit(main())
