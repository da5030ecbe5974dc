#!/bin/sh
# docs.sh [FOLDER] - builds the site in build/site or FOLDER: docs/, the C and Python interfaces, and the walk-throughs. Every link is
# checked. The pages load nothing from other hosts.
#
# FOLDER is replaced, so it must be absent, empty, or a site built by an earlier run. The tools (MkDocs, Material for
# MkDocs, mkdocstrings) are installed into build/docs-tools; later runs do not need a network. Exit status: 0 built, 1
# failed, 2 FOLDER has other files, 3 a missing package could not be installed.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
# shellcheck source=tools/setup.sh
. "$root/tools/setup.sh"

mkdir -p "${1:-$root/build/site}"
out=$(CDPATH='' cd -- "${1:-$root/build/site}" && pwd)
# A site built by an earlier run contains objects.inv, the list of documented names, with the name of the site.
[ "$out" = "$root/build/site" ] || [ -z "$(ls -A "$out")" ] || grep -qs '^# Project: mha$' "$out/objects.inv" ||
    fail 2 "$out must be absent, empty, or a site built by an earlier run, because it is replaced"
install_needs "$build_needs$tools_needs"
tools=$root/build/docs-tools
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

make_site() {
    NO_MKDOCS_2_WARNING=1 MHA_DOCS_PROGRAM=${MHA:-$root/build/release/bin/mha} "$tools/bin/python" -m mkdocs build --strict -q \
        -f "$root/tools/site/mkdocs.yml" -d "$work/site"
}

logged docs-tools 'installing tools for the site' get_tools "$tools" 'import material, mkdocs, mkdocstrings_handlers.python' \
    'mkdocs>=1.6,<2' 'mkdocs-material>=9.5,<10' 'mkdocstrings[python]>=0.27,<2' ||
    fail 3 'cannot install the tools; check the network connection. The output of pip is above.'
[ -n "${MHA:-}" ] || build release OFF mha || fail 1 'cannot build the program.'
logged docs 'building the site' make_site || fail 1 'cannot build the site.'
rm -rf "$out"
mv "$work/site" "$out"
echo "$out/index.html"
