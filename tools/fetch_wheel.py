#!/usr/bin/env python3
"""fetch_wheel.py - downloads one file of a Python package without pip: fetch_wheel.py PACKAGE SHA256 FOLDER

The file is the one whose link on the package's index page carries SHA256, and its bytes must have it. The index is $PIP_INDEX_URL, or
that of PyPI. Proxies come from the environment, as urllib reads them.
"""

import hashlib
import os
import pathlib
import re
import sys
import urllib.parse
import urllib.request

CHUNK = 1 << 16


def link_of(page, text, sha256):
    """The address that the index page links to with this hash."""
    found = re.search(rf'href="([^"#]+)#sha256={sha256}"', text)
    if not found:
        sys.exit(f"{page}: no file with sha256 {sha256} is listed")
    return urllib.parse.urljoin(page, found[1])


def download(address, path):
    """Writes what is at the address to path; returns its sha256."""
    digest = hashlib.sha256()
    with urllib.request.urlopen(address, timeout=20) as source, open(path, "xb") as target:
        while chunk := source.read(CHUNK):
            digest.update(chunk)
            target.write(chunk)
    return digest.hexdigest()


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    package, sha256, folder = sys.argv[1:]
    index = os.environ.get("PIP_INDEX_URL") or "https://pypi.org/simple"
    page = f"{index.rstrip('/')}/{package}/"
    try:
        with urllib.request.urlopen(page, timeout=20) as source:
            address = link_of(page, source.read().decode("utf-8"), sha256)
        path = pathlib.Path(folder) / urllib.parse.urlsplit(address).path.rpartition("/")[2]
        got = download(address, path)
    except OSError as error:  # urllib's errors are among them
        sys.exit(f"{page}: {error}")
    if got != sha256:
        path.unlink()
        sys.exit(f"{address}: sha256 must be {sha256} (got {got})")


if __name__ == "__main__":
    main()
