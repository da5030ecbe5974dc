#!/usr/bin/env python3
"""fetch_wheel.py - downloads one file of a Python package without pip: fetch_wheel.py PACKAGE SHA256 FOLDER

Selects the link with SHA256 on the package's index page, and checks that the downloaded file has this hash. The index is
$PIP_INDEX_URL (default: PyPI). urllib reads the proxies from the environment.
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
    """Returns the address of the link with this hash on the index page."""
    found = re.search(rf'href="([^"#]+)#sha256={sha256}"', text)
    if not found:
        sys.exit(f"{page}: does not list a file with sha256 {sha256}")
    return urllib.parse.urljoin(page, found[1])


def download(address, path):
    """Downloads the address to path; returns the sha256."""
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
    except OSError as error:  # OSError includes the errors of urllib
        sys.exit(f"{page}: {error}")
    if got != sha256:
        path.unlink()
        sys.exit(f"{address}: sha256 must be {sha256} (got {got})")


if __name__ == "__main__":
    main()
