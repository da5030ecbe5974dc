#!/bin/sh
# check_install.sh - check_install.sh BUILD: what is installed can be used, from wherever it is moved to, as README.md says, and can be
# removed again.
#
# Installs the build folder, moves the result elsewhere, and builds and runs programs against it: tests/install through find_package,
# every example through pkg-config. Then the lines of README.md under "Install" are run as they stand, with a home folder of their own.
# $CC is the compiler (cc).
set -eu
cd "$(dirname -- "$0")/.."
[ $# -eq 1 ] || {
    echo 'usage: check_install.sh BUILD' >&2
    exit 2
}
build=$(cd "$1" && pwd)
grep -q '^CMAKE_INSTALL_\(BIN\|LIB\|INCLUDE\)DIR:PATH=/' "$build/CMakeCache.txt" && {
    echo 'skipped: this build installs to absolute folders, so a trial would write outside of its own'
    exit 77
}
work=$(mktemp -d)
# Each installation is listed in the build folder, for `uninstall`: the list of the user's own stays.
manifest=$build/install_manifest.txt
[ ! -e "$manifest" ] || cp -p "$manifest" "$work/manifest"
restore() {
    rm -f "$manifest"
    [ ! -e "$work/manifest" ] || cp -p "$work/manifest" "$manifest"
    rm -rf "$work"
}
trap restore EXIT
cc=${CC:-cc}

# quietly COMMAND...: its output only if it fails.
quietly() {
    "$@" >"$work/log" 2>&1 || {
        cat "$work/log"
        echo "failed: $*"
        exit 1
    }
}

quietly cmake --install "$build" --prefix "$work/first"
mv "$work/first" "$work/prefix"

# ---- CMake ----
quietly cmake -S tests/install -B "$work/consumer" -G Ninja -DCMAKE_C_COMPILER="$cc" -DCMAKE_PREFIX_PATH="$work/prefix"
quietly cmake --build "$work/consumer"
for kind in mha shared static attn attn_static; do "$work/consumer/consumer_$kind"; done

# ---- pkg-config: every example by one command ----
pc=$(find "$work/prefix" -name mha.pc)
PKG_CONFIG_PATH=${pc%/*}
export PKG_CONFIG_PATH
libdir=$(pkg-config --variable=libdir mha)
for source in examples/*.c; do
    # shellcheck disable=SC2046 # lists of words
    quietly "$cc" "$source" $(pkg-config --cflags --libs mha) -o "$work/example"
done
for package in mha mha_attn; do
    # shellcheck disable=SC2046 # lists of words
    quietly "$cc" examples/attention.c $(pkg-config --cflags --libs "$package") "-Wl,-rpath,$libdir" -o "$work/$package"
    "$work/$package" >"$work/$package.out"
    grep -q 'token 3 attends to 0.000 0.005 0.000 0.995' "$work/$package.out"
done
needed=$(readelf -d "$libdir/libmha_attn.so" | sed -n 's/.*(NEEDED).*\[\(.*\)\.so.*/\1/p' | sort | tr '\n' ' ')
case $needed in 'libc libm ' | 'ld-linux-'*' libc libm ') ;; *)
    echo "libmha_attn must need libc and libm alone (got $needed)"
    exit 1
    ;;
esac

# ---- the program ----
if [ -e "$work/prefix/bin/mha" ]; then
    quietly "$work/prefix/bin/mha" --version
    for file in man/man1/mha.1 man/man1/mha-heads.1 bash-completion/completions/mha zsh/site-functions/_mha fish/vendor_completions.d/mha.fish; do
        [ -s "$work/prefix/share/$file" ] || {
            echo "share/$file must be installed"
            exit 1
        }
    done
fi

# ---- README.md ----
# The lines run in a folder where build/release is this build, and the examples are those of the project.
mkdir -p "$work/tree/build" "$work/home" "$work/bin"
ln -s "$build" "$work/tree/build/release"
ln -s "$PWD/examples" "$work/tree/examples"
# lines N: the N-th block of commands in the section Install.
lines() {
    awk -v wanted="$1" '/^## / { on = /^## Install/ } /^```$/ { code = 0 } on && code && block == wanted
        on && /^```sh$/ { code = 1; block++ }' README.md >"$work/lines$1"
    grep -q 'cmake --install' "$work/lines$1" || {
        echo "README.md: block $1 of the section Install must install"
        exit 1
    }
}

# For one user. PATH as it is, and nothing else that would help.
lines 1
(cd "$work/tree" && quietly env -u PKG_CONFIG_PATH -u LD_LIBRARY_PATH HOME="$work/home" sh -eu "$work/lines1")
left=$(find "$work/home/.local" ! -type d -o -name mha)
[ -z "$left" ] || {
    echo "uninstall must remove everything; left behind: $left"
    exit 1
}

# For all users: with a /usr/local and an /etc of their own, which end with the process. sudo is a stand-in.
lines 2
cat >"$work/private" <<'PRIVATE'
set -eu
mkdir "$1/local" "$1/etc"
cp -a /etc/. "$1/etc" 2>/dev/null || : # what this user may not read, ldconfig does not need
mount --bind "$1/local" /usr/local
mount --bind "$1/etc" /etc
printf '#!/bin/sh\nexec "$@"\n' >"$1/bin/sudo"
chmod +x "$1/bin/sudo"
cd "$1/tree"
env -u PKG_CONFIG_PATH -u LD_LIBRARY_PATH PATH="$1/bin:/usr/bin:/usr/sbin:/bin:/sbin" sh -eu "$1/lines2"
PRIVATE
if ! unshare -rm true 2>/dev/null; then
    echo 'skipped: installing to /usr/local; this user may not make a mount namespace'
elif ! grep -q '^CMAKE_INSTALL_PREFIX:PATH=/usr/local$' "$build/CMakeCache.txt" || ! [ -x /usr/bin/cmake ]; then
    echo 'skipped: installing to /usr/local; this build has another prefix, or CMake lies there itself'
else
    quietly unshare -rm sh "$work/private" "$work"
    left=$(find "$work/local" ! -type d -o -name mha)
    [ -z "$left" ] || {
        echo "uninstall must remove everything; left behind: $left"
        exit 1
    }
fi
