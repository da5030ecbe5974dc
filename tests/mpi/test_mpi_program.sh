# test_mpi_program.sh - mha-mpi must have the same output and exit status as mha. Only rank 0 may print, and an error must
# name the rank that failed. Also tests mha-mpi launch.
# shellcheck shell=sh source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"
# shellcheck source=tests/mpi/lib.sh
. "$here/tests/mpi/lib.sh"

alike 4 info -m "$tiny" --json
alike 2 tokenize -m "$tiny" "a cat on a mat"
alike 1 embed -m "$tiny" "a cat" "a dog"
alike 2 --version
alike 3 help tokenize
alike 2 nonsense
alike 4 info -m "$work/absent"
alike 2 tokenize --nonsense

# An output file must equal that of mha, although all ranks run the command.
expect 0 "$ranks" 2 "$MHA_MPI" embed -m "$tiny" "a cat" -o vectors.npy
expect 0 "$MHA" embed -m "$tiny" "a cat" -o one.npy
same one.npy vectors.npy

# An error must print one message, with rank and host.
expect 3 "$ranks" 3 "$MHA_MPI" info -m "$work/absent"
has err "mha-mpi info: rank 0 ($host): $work/absent: a model must be"
[ "$(grep -c 'a model must be' err)" = 1 ] || fail "$(cat err)"

# Options of mha-mpi itself.
expect 0 "$ranks" 2 "$MHA_MPI" --timeout 20 --mixed-isa --version
refused 2 "$MHA_MPI" --timeout 0 --version
has err 'mha-mpi: --timeout must be a whole number from 1 to 1000000 (got "0")'

# A different command line on one rank must be rejected.
# shellcheck disable=SC2016 # each rank expands these variables
printf '#!/bin/sh\nexec "$MHA_MPI" info -m "$OMPI_COMM_WORLD_RANK"\n' >differs
chmod +x differs
expect 1 "$ranks" 2 ./differs
has err "rank 1 ($host): the command line must be the same as on rank 0 ($host)"

# ---- mha-mpi launch ----
expect 0 "$MHA_MPI" launch --help
has out 'Usage: mha-mpi launch'
expect 0 "$MHA_MPI" launch -np 3 tokenize -m "$tiny" "a cat on a mat"
"$MHA" tokenize -m "$tiny" "a cat on a mat" >one
same one out
expect 3 "$MHA_MPI" launch -np 2 --retries 2 info -m "$work/absent"
has_not err 'starting it again'
expect 0 "$MHA_MPI" launch --hosts hosts.txt --timeout 7 --mixed-isa --print heads -f texts.txt
has out 'oob_tcp_keepalive_time 5'
has out "--hostfile hosts.txt --map-by ppr:1:numa --bind-to numa"
has out "$(basename "$MHA_MPI") --timeout 7 --mixed-isa heads -f texts.txt"
# The shell must read the printed command back as the given words.
expect 0 "$MHA_MPI" launch --print -np 2 score "it's \$HOME" ''
has out "score 'it'\\''s \$HOME' ''"
for wrong in '-np 0' '-np x' '-np' '--hosts' '--retries -1' '--timeout 0' '--nonsense' ''; do
    # shellcheck disable=SC2086 # words
    refused 2 "$MHA_MPI" launch $wrong
done

# A job that is killed must be started again. A fake mpirun kills itself in its first run.
mkdir bin
printf '#!/bin/sh\n[ -e %s/died ] && exit 0\n: >%s/died\nkill -9 $$\n' "$work" "$work" >bin/mpirun
chmod +x bin/mpirun
PATH=$work/bin:$PATH expect 0 "$MHA_MPI" launch -np 2 --retries 1 info
has err 'the job ended with exit status 137; starting it again (1 of 1)'
rm died
PATH=$work/bin:$PATH expect 137 "$MHA_MPI" launch -np 2 info

# An mpirun that waits forever after its last process must be killed. This one opens a pipe that nobody writes to.
mkfifo never
printf '#!/bin/sh\nsleep 0.5\nread -r line <%s/never\n' "$work" >bin/mpirun
PATH=$work/bin:$PATH expect 1 "$MHA_MPI" launch -np 2 info
has err 'killed mpirun, which did not end within 10 s after one of its processes'

# An mpirun that waits forever for a frozen process must be killed with this process, after another process has ended.
printf '#!/bin/sh\nsleep 3 &\nsleep 600 &\necho $! >%s/pid.frozen\nkill -STOP $!\nwait\n' "$work" >bin/mpirun
PATH=$work/bin:$PATH expect 1 "$MHA_MPI" launch -np 2 info
has err 'killed mpirun, which did not end within 10 s after one of its processes'
await_gone 'a frozen process' 5
finish
