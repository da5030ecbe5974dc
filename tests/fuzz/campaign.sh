#!/bin/sh
# campaign.sh OUT STATE [RUNS [JOBS [TARGET...]]] - fuzzes the programs that build.sh has written to OUT, in JOBS processes (default: 1),
# until all targets together have RUNS runs (default: 10^8). Prints the table of docs/security.md.
# campaign.sh --table STATE - prints only the table; may be called during a campaign.
# The targets run in turns of MHA_FUZZ_SECONDS (default: 60). The folder STATE contains a file TARGET.turns with one line per turn (runs and
# edges as counted by libFuzzer), and a folder TARGET/ with the corpus and the findings crash-*, leak-* and timeout-*. Another call with the
# same STATE resumes the campaign. If the file STATE/stop exists, the campaign ends after the current turns. A target with a finding is
# skipped until the file of the finding is removed.
set -eu

findings() {
    find "$1" -maxdepth 1 \( -name 'crash-*' -o -name 'leak-*' -o -name 'timeout-*' -o -name 'oom-*' \) 2>/dev/null | wc -l
}

all_runs() {
    find "$1" -maxdepth 1 -name '*.turns' -exec cat {} + 2>/dev/null | awk '{ runs += $1 } END { printf "%d", runs }'
}

# grouped NUMBER: prints a number with thousands separators, such as 12,345,678.
grouped() {
    awk -v n="$1" 'BEGIN { t = n ""; while (length(t) > 3) { r = "," substr(t, length(t) - 2) r; t = substr(t, 1, length(t) - 3) }
                           print t r }'
}

table() {
    echo "| target | runs | covered edges | corpus inputs | findings |"
    echo "|---|---|---|---|---|"
    for turns in "$1"/*.turns; do
        name=$(basename "$turns" .turns)
        awk -v name="$name" -v found="$(findings "$1/$name")" '
            { runs += $1; if ($2 > edges) edges = $2; corpus = $3 }
            END { printf "%s %d %d %d %d\n", name, runs, edges, corpus, found }' "$turns"
    done | while read -r name runs edges corpus found; do
        echo "| $name | $(grouped "$runs") | $(grouped "$edges") | $(grouped "$corpus") | $found |"
    done
    echo "| all | $(grouped "$(all_runs "$1")") | | | |"
}

# turn NAME: runs one turn of the target NAME and appends the counts of libFuzzer to its .turns file.
turn() {
    name=$1
    if [ ! -d "$state/$name" ]; then
        mkdir -p "$state/$name"
        [ ! -e "$out/${name}_seed_corpus.zip" ] || (cd "$state/$name" && cmake -E tar xf "$out/${name}_seed_corpus.zip")
    fi
    dictionary=
    [ ! -e "$out/$name.dict" ] || dictionary=-dict=$out/$name.dict
    log=$state/$name.log
    # shellcheck disable=SC2086 # one word, or none
    nice -n 19 "$out/$name" $dictionary -max_total_time="${MHA_FUZZ_SECONDS:-60}" -timeout=20 -rss_limit_mb=2048 \
        -print_final_stats=1 -artifact_prefix="$state/$name/" "$state/$name" >"$log" 2>&1 || true
    awk '/^#[0-9]+/ { for (i = 1; i < NF; i++) { if ($i == "cov:") edges = $(i + 1); if ($i == "corp:") corpus = $(i + 1) } }
         /^stat::number_of_executed_units:/ { runs = $2 }
         END { sub("/.*", "", corpus); if (runs > 0) print runs, edges + 0, corpus + 0 }' "$log" >>"$state/$name.turns"
}

# work N: runs the turns of process N, which runs every JOBS-th target.
work() {
    while [ ! -e "$state/stop" ]; do
        done_one=0
        place=0
        for name in $targets; do
            place=$((place + 1))
            [ $((place % jobs)) -eq "$1" ] || continue
            if [ ! -e "$state/stop" ] && [ "$(all_runs "$state")" -lt "$most" ] && [ "$(findings "$state/$name")" -eq 0 ]; then
                turn "$name"
                done_one=1
            fi
        done
        [ $done_one -eq 1 ] || return 0
    done
}

if [ "${1:-}" = --table ]; then
    table "$2"
    exit
fi
[ $# -ge 2 ] || {
    sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
    exit 2
}
[ -z "${TMPDIR:-}" ] && [ -w /dev/shm ] && export TMPDIR=/dev/shm # in memory, because every input is written to a file
mkdir -p "$2"
out=$(CDPATH='' cd -- "$1" && pwd) state=$(CDPATH='' cd -- "$2" && pwd) most=${3:-100000000} jobs=${4:-1}
shift $(($# < 4 ? $# : 4))
targets=$*
[ -n "$targets" ] || targets=$(find "$out" -maxdepth 1 -type f -name 'fuzz_*' -perm -u+x -exec basename {} \; | sort)
job=0
while [ $job -lt "$jobs" ]; do
    work $job &
    job=$((job + 1))
done
wait
table "$state"
