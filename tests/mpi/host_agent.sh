#!/bin/sh
# host_agent.sh - what mpirun calls in place of ssh: host_agent.sh 10.99.0.I COMMAND... runs the command on host I of hosts.sh.
host=${1##*.}
shift
exec ip netns exec "$HOSTS_NET$host" unshare -u sh -c "hostname h$host; exec sh -c \"\$0\"" "$*"
