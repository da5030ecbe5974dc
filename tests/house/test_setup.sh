#!/bin/sh
# test_setup.sh - checks ./run and ./check with missing packages: they must install packages only with permission, and
# always print the command that installs them.
# tools/setup.sh is sourced with a PATH that contains only fake programs: `id` prints the user, `apt-get` and `sudo`
# record their arguments. No package is installed.
# shellcheck disable=SC2016 # the fake programs expand these variables
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# stand_in NAME BODY: creates the fake program NAME, a shell script.
stand_in() {
    printf '#!/bin/sh\n%s\n' "$2" >"$work/bin/$1"
    chmod +x "$work/bin/$1"
}

# world UID TOOL...: simulates a new machine with the user UID and only the package tools TOOL.
world() {
    rm -rf "${work:?}"/*
    mkdir -p "$work/bin" "$work/tree"
    stand_in id "echo $1"
    shift
    for tool in cat env grep ln mkdir printf rm sh tail; do ln -s "$(command -v "$tool" || echo /bin/false)" "$work/bin/$tool"; done
    for tool in "$@"; do
        case $tool in
        sudo) stand_in sudo 'echo sudo >>"$CALLED"; exec "$@"' ;;
        apt-get) stand_in apt-get 'echo "apt-get $*" >>"$CALLED"
            echo pmstatus:two:41.3793:Unpacking two
            case "$*" in *install*) ln -s /bin/true "${0%/*}/two" ;; esac' ;;
        broken-apt-get) stand_in apt-get 'echo "no network" >&2; exit 100' ;;
        esac
    done
}

# Two required packages; the fake apt-get creates the program `two` of the second package.
needs='
tool  two  one two
'

# expect NAME STATUS VARIABLES TEXT...: without a terminal, install_needs must end with STATUS and print (or call) every
# TEXT.
expect() {
    name=$1 wanted=$2 variables=$3
    shift 3
    got=0
    # shellcheck disable=SC2086 # a list of assignments
    env -i $variables PATH="$work/bin" CALLED="$work/called" root="$work/tree" NEEDS="$needs" \
        "$work/bin/sh" -c ". '$root/tools/setup.sh'; install_needs \"\$NEEDS\"" \
        >"$work/out" 2>"$work/err" </dev/null || got=$?
    cat "$work/called" >>"$work/err" 2>/dev/null || :
    [ "$got" -eq "$wanted" ] || complain "exit status must be $wanted (got $got)"
    [ ! -s "$work/out" ] || complain 'stdout must be empty'
    for text in "$@"; do
        grep -qF -- "$text" "$work/err" || complain "the output must contain: $text"
    done
}

complain() {
    echo "$name: $1"
    sed 's/^/    /' "$work/err"
    failures=$((failures + 1))
}

never_called() {
    [ ! -e "$work/called" ] || complain 'apt-get must not be called'
}

install='apt-get update && apt-get install -y --no-install-recommends one two'

world 0 apt-get
expect 'root installs' 0 '' 'installing with apt-get: one two' 'apt-get -qq -o Dpkg::Use-Pty=0 -o APT::Status-Fd=1 install -y' \
    'installing (log: build/install.log)'
expect 'nothing is missing' 0 ''

world 1000
expect 'no apt-get' 3 '' 'one two' 'apt-get is not installed'

world 1000 apt-get
expect 'no permission' 3 '' "$install"
never_called
expect 'no permission, even with MHA_YES' 3 'MHA_YES=1' "$install"
never_called

world 1000 apt-get sudo
expect 'sudo without a terminal' 3 '' 'MHA_YES=1' "$install"
never_called
expect 'sudo with MHA_YES' 0 'MHA_YES=1' 'sudo'
world 1000 apt-get sudo
expect 'sudo in CI' 0 'CI=true' 'sudo'

world 0 broken-apt-get
expect 'apt-get fails' 1 '' 'no network' 'check the network connection'

if [ "$failures" -gt 0 ]; then exit 1; fi
echo 'all checks passed'
