# setup.sh - functions of ./run and ./check: find missing packages, install them after asking, build with progress.
#
# Source this file after setting `root` to the top of the source tree. All messages are written to stderr, because
# stdout is for the output of the program. Builds are in build/NAME (a preset of CMakePresets.json), and their logs are
# in build/NAME.log. Files outside the source tree are changed only by apt-get, and its packages are listed first.
# shellcheck shell=sh
: "${root:?must be set before sourcing}"

# One requirement per line: how to check it, what to check, and the Debian packages that provide it. (CMake checks versions.)
# shellcheck disable=SC2034 # read by run and check
build_needs='
cc    -             gcc libc6-dev
tool  cmake         cmake
tool  ninja         ninja-build
tool  pkg-config    pkg-config
lib   jansson       libjansson-dev
lib   libutf8proc   libutf8proc-dev
lib   libpcre2-8    libpcre2-dev
lib   kissfft-float libkissfft-dev
lib   popt          libpopt-dev
lib   cairo         libcairo2-dev
lib   zlib          zlib1g-dev
lib   libpng        libpng-dev
lib   libjpeg       libjpeg-dev
'
# shellcheck disable=SC2034 # read by docs.sh and wheel.sh, for get_tools
tools_needs='
tool  python3  python3
pip   -        python3-pip
venv  -        python3-venv
'
# shellcheck disable=SC2034 # read by fetch.sh
fetch_needs='
tool   python3   python3
certs  -         ca-certificates
'

say() { printf 'mha: %s\n' "$*" >&2; }

# fail CODE SENTENCE: prints the sentence and exits with CODE: 1 (failed), 2 (invalid usage) or 3 (a requirement is
# missing).
fail() {
    code=$1
    shift
    say "$@"
    exit "$code"
}

have() { command -v "$1" >/dev/null 2>&1; }

# have_cc: checks for a compiler with the headers of the C library.
have_cc() { printf '#include <stdio.h>\n' | "${CC:-cc}" -E - >/dev/null 2>&1; }

# have_need KIND WHAT: checks one requirement.
have_need() {
    case $1 in
    cc) have_cc ;;
    tool) have "$2" ;;
    file) [ -e "$2" ] ;;
    lib) have pkg-config && pkg-config --exists "$2" ;;
    pip) python3 -m pip --version >/dev/null 2>&1 ;;
    venv) python3 -c 'import ensurepip, venv' >/dev/null 2>&1 ;;
    certs) [ -e /etc/ssl/certs/ca-certificates.crt ] || [ -e /etc/pki/tls/certs/ca-bundle.crt ] || [ -e /etc/ssl/cert.pem ] ;;
    esac
}

# missing_packages NEEDS: prints the packages of all missing requirements on one line.
missing_packages() {
    printf '%s\n' "$1" | while read -r kind what packages; do
        [ -z "$kind" ] || have_need "$kind" "$what" || printf '%s ' "$packages"
    done
}

# ---- apt-get ----

# allowed PACKAGES: sets `as` (empty or sudo) if apt-get may be used; otherwise prints the reason and the command to type.
allowed() {
    line="apt-get update && apt-get install -y --no-install-recommends $*"
    as=
    if ! have apt-get; then
        say "missing packages (Debian names): $*"
        say 'apt-get is not installed. On other systems, install a C compiler, cmake, ninja and pkg-config (or pkgconf);'
        say 'libNAME-dev is called NAME-devel on Fedora and openSUSE, and NAME on Arch and Homebrew.'
        return 1
    fi
    [ "$(id -u)" -ne 0 ] || return 0
    if ! have sudo; then
        say 'packages are missing, and installing them requires root. An administrator can run:'
        say "    $line"
        return 1
    fi
    as=sudo
    [ "${CI:-}" != true ] && [ "${MHA_YES:-}" != 1 ] || return 0
    say "missing: $*"
    if ! [ -t 0 ] || ! [ -t 2 ]; then
        say 'cannot ask without a terminal. Set MHA_YES=1 to let this script install the packages with sudo, or run:'
    else
        printf 'mha: install these packages with sudo apt-get? [y/N] ' >&2
        read -r answer || answer=n
        case $answer in [yY]*) return 0 ;; esac
        say 'nothing was installed. To install the packages yourself, run:'
    fi
    say "    sudo sh -c '$line'"
    return 1
}

# apt_get ARGUMENTS: runs apt-get, with sudo if `allowed` requires it. `progress` reads its status lines.
apt_get() { ${as:+"$as"} env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 -o APT::Status-Fd=1 "$@"; }

apt_install() { apt_get update && apt_get install -y --no-install-recommends "$@"; }

# install_needs NEEDS [ALSO]: installs the missing packages of NEEDS and ALSO, asking only once. Exits 3 if
# installing is not allowed, 1 if it fails.
install_needs() {
    packages=$(missing_packages "$1")
    [ -n "$packages" ] || return 0
    packages=$packages$(missing_packages "${2:-}")
    # shellcheck disable=SC2086 # a list of words
    {
        allowed $packages || exit 3
        say "installing with apt-get: $packages"
        logged install installing apt_install $packages ||
            fail 1 'cannot install the packages; check the network connection. The output of apt-get is above.'
    }
    still=$(missing_packages "$1")
    [ -z "$still" ] || fail 3 "installed, but still not found: $still(check CC and PKG_CONFIG_PATH)"
}

# get_tools FOLDER PROGRAM PACKAGE...: installs Python packages into the virtual environment FOLDER, unless PROGRAM, a Python program that
# uses them, succeeds there.
get_tools() {
    venv=$1 uses=$2
    shift 2
    "$venv/bin/python" -c "$uses" && return
    "${MHA_PYTHON:-python3}" -m venv "$venv" && "$venv/bin/python" -m pip install -q "$@"
}

# ---- build ----

# progress LABEL: copies stdin to the log. On a terminal, shows the counters of ninja ("[7/90] ..."), ctest ("7/90 Test ...") and
# apt-get ("pmstatus:zlib1g-dev:41.3793:Unpacking ...") in one line that is updated; otherwise prints the label once.
progress() {
    announced=
    while IFS= read -r text; do
        printf '%s\n' "$text" >>"$log"
        case $text in
        '[0/'*) continue ;; # counter of ninja before the number of steps is known
        '['[0-9]*/*']'*) count=${text%%\]*}] ;;
        *[0-9]/[0-9]*' Test '*) count=[${text%% Test *}] ;;
        dlstatus:*.[0-9]*:*) count=${text%%.[0-9]*:*} && count="[download ${count##*:} %]" ;;
        pmstatus:*.[0-9]*:*) count=${text%%.[0-9]*:*} && count="[${count##*:} %]" ;;
        *) continue ;;
        esac
        if [ -t 2 ]; then
            printf '\r\033[Kmha: %s %s' "$1" "$count" >&2
        elif [ -z "$announced" ]; then
            say "$1 (log: ${log#"$root"/})"
        fi
        announced=1
    done
    if [ -t 2 ] && [ -n "$announced" ]; then printf '\r\033[K' >&2; fi
}

# logged NAME LABEL COMMAND...: runs the command with its output in build/NAME.log; prints the end of the log if it fails.
logged() {
    mkdir -p "$root/build" 2>/dev/null || :
    [ -w "$root/build" ] || fail 1 "cannot write to the build folder $root/build."
    log=$root/build/$1.log
    label=$2
    shift 2
    : >"$log"
    { status=0 && "$@" </dev/null 2>&1 || status=$?; echo "$status" >"$log.status"; } | progress "$label"
    status=$(cat "$log.status")
    rm -f "$log.status"
    [ "$status" -ne 0 ] || return 0
    tail -n "${log_lines:-80}" "$log" >&2
    say "failed; see the log ${log#"$root"/}"
    return "$status"
}

# configured DIR TESTING: checks that DIR is a build of this source tree, with tests if TESTING is not OFF.
configured() {
    [ -f "$1/build.ninja" ] && grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$root" "$1/CMakeCache.txt" &&
        { [ "$2" = OFF ] || grep -qx 'BUILD_TESTING:BOOL=ON' "$1/CMakeCache.txt"; }
}

# use_ccache: enables ccache if it is installed and has a cache folder. Paths are relative to the top of the source tree, so that builds
# with the same flags share objects, even between checkouts.
use_ccache() {
    ccache --show-stats >/dev/null 2>&1 || return 0
    CMAKE_C_COMPILER_LAUNCHER=${CMAKE_C_COMPILER_LAUNCHER-ccache} CCACHE_BASEDIR=${CCACHE_BASEDIR-$root} CCACHE_NOHASHDIR=1
    export CMAKE_C_COMPILER_LAUNCHER CCACHE_BASEDIR CCACHE_NOHASHDIR
}

# make_build PRESET TESTING TARGET...: configures build/PRESET if necessary, and builds the targets.
make_build() {
    dir=$root/build/$1
    use_ccache
    if ! configured "$dir" "$2"; then
        # A build folder that was copied with its source tree would build the original tree.
        grep -qsxF "CMAKE_HOME_DIRECTORY:INTERNAL=$root" "$dir/CMakeCache.txt" || rm -rf "$dir"
        cmake -S "$root" --preset "$1" -DBUILD_TESTING="$2" || return
    fi
    shift 2
    ninja -C "$dir" "$@"
}

# build PRESET TESTING [TARGET...]: brings build/PRESET up to date; without changes, this takes a few hundredths of a second.
build() { logged "$1" "building $1" make_build "$@"; }
