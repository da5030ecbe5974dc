#!/bin/sh
# host_agent.sh - replaces ssh for mpirun: host_agent.sh 10.99.0.I COMMAND... runs COMMAND on host I of hosts.sh.
host=${1##*.}
shift
exec ip netns exec "$HOSTS_NET$host" unshare -u sh -c "hostname h$host; exec sh -c \"\$0\"" "$*"
