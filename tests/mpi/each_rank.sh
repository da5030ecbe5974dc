#!/bin/sh
# each_rank.sh - runs $MHA_MPI with the arguments, in the folder `folder.RANK` if it exists. Writes the process id to the file
# pid.RANK. Rank $FROZEN stops itself before it runs $MHA_MPI; rank $SCALAR uses the ISA scalar.
rank=$OMPI_COMM_WORLD_RANK
echo $$ >"pid.$rank"
[ "$rank" != "${FROZEN:-none}" ] || kill -STOP $$
[ ! -d "folder.$rank" ] || cd "folder.$rank" || exit 1
[ "$rank" != "${SCALAR:-none}" ] || export MHA_ISA=scalar
exec "$MHA_MPI" "$@"
