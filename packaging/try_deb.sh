#!/bin/sh
# try_deb.sh FOLDER - installs the Debian packages of FOLDER in an empty Debian root, runs mha demo and the examples of README.md, removes
# the packages, and checks that nothing is left.
#
# The root has the release of this machine. The package archive is the one that mmdebstrap uses by default. MHA_MODELS may name a folder
# with the model minilm, for the example of sentence embeddings. Exit status: 0 passed, 1 failed, 77 a requirement is missing.
# shellcheck disable=SC2016 # the shell in the root expands variables
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
packages=$(CDPATH='' cd -- "${1:?must name the folder of the packages}" && pwd)

skip() {
    echo "skipped: $1"
    exit 77
}
command -v mmdebstrap >/dev/null || skip 'installing packages in an empty Debian root requires mmdebstrap'
[ "$(id -u)" -eq 0 ] || skip 'installing packages in an empty Debian root requires root'
# shellcheck source=/dev/null
release=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
debian=$work/root

# inside COMMAND: runs shell commands in the root; prints their output only if they fail.
inside() {
    chroot "$debian" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive sh -euc "$1" >"$work/log" 2>&1 || {
        cat "$work/log"
        echo "failed: $1"
        exit 1
    }
}

# prints TEXT: the output of the last command must contain TEXT.
prints() {
    grep -qF -- "$1" "$work/log" || {
        cat "$work/log"
        echo "the output must contain: $1"
        exit 1
    }
}

mmdebstrap --quiet --variant=minbase "$release" "$debian" >"$work/log" 2>&1 || {
    tail -n 5 "$work/log"
    skip "cannot create a Debian root of the release $release"
}
# The network settings of this machine also apply in the root.
for setting in /etc/apt/apt.conf.d/*proxy* /etc/resolv.conf; do
    [ ! -e "$setting" ] || cp -L "$setting" "$debian$setting"
done
mkdir "$debian/try"
cp "$packages"/*.deb "$root/examples/attention.c" "$debian/try"
inside 'apt-get update'

# ---- the program alone ----
inside 'cd /try && apt-get install -y --no-install-recommends ./mha_*.deb'
inside 'mha demo'
prints 'The built-in model'
prints 'wug dax blicket toma fep.'
inside 'mha heads "The cat sat on the mat"'
prints '1.1   induction     0.97'
inside 'ls /usr/share/man/man1/mha-heads.1.gz /usr/share/bash-completion/completions/mha /usr/share/zsh/vendor-completions/_mha'
if [ -d "${MHA_MODELS:-}/minilm" ]; then
    mkdir -p "$debian/root/.cache/mha"
    cp -rL "$MHA_MODELS/minilm" "$debian/root/.cache/mha/minilm"
    inside 'cd /try && mha embed -m minilm "a cat" "a kitten" "an engine" -o vectors.npy'
    inside 'head -c 128 /try/vectors.npy'
    prints "'shape': (3, 384)"
fi

# ---- the libraries ----
inside 'cd /try && apt-get install -y --no-install-recommends gcc pkg-config ./libmha*.deb'
for package in mha mha_attn; do
    for linking in '' --static; do
        inside "cd /try && cc attention.c \$(pkg-config $linking --cflags --libs $package) -o attention && ./attention"
        prints 'token 3 attends to tokens 0..3 with weights 0.000 0.005 0.000 0.995'
    done
done

# ---- removal ----
inside 'for package in mha libmha0 libmha-dev; do dpkg -L "$package"; done | sort -u >/try/owned'
inside 'apt-get purge -y mha libmha0 libmha-dev'
inside 'while read -r path; do [ ! -f "$path" ] && [ ! -L "$path" ] || echo "$path"; done </try/owned'
left=$(cat "$work/log" && find "$debian" -xdev -name '*mha*' ! -path "$debian/try/*" ! -path "$debian/root/*" ! -path "$debian/var/log/*")
[ -z "$left" ] || {
    echo "removal must leave no files (got $left)"
    exit 1
}
