# hosts.sh - shell functions that create several hosts on one machine. Sourced by tests; requires root and iproute2. A host is a network
# namespace with an address from 10.99.0.1 to 10.99.0.N. The hosts are connected by a bridge in a separate namespace, so the network of
# the machine does not change. The namespaces are ${net}0 (the bridge) and ${net}1 to ${net}N. Each host has its own host name, h1 to hN,
# so Open MPI treats it as another machine and connects its ranks over TCP.
# shellcheck shell=sh disable=SC2154 # tests/cli/lib.sh sets $here
net=mha$$-

# hosts_possible: creates the bridge; succeeds if this process may create namespaces and mpirun belongs to Open MPI, whose options
# hosts_run uses.
hosts_possible() {
    [ "$(id -u)" -eq 0 ] && command -v ip >/dev/null && mpirun --version 2>&1 | grep -q 'Open MPI' || return 1
    ip netns add "${net}0" 2>/dev/null && unshare -u true 2>/dev/null && ip -n "${net}0" link add br0 type bridge 2>/dev/null && return
    ip netns del "${net}0" 2>/dev/null
    return 1
}

# hosts_up N: creates N hosts; call hosts_possible first. hosts_down N removes the hosts.
hosts_up() {
    ip -n "${net}0" link set br0 up
    for i in $(seq "$1"); do
        ip netns add "$net$i"
        ip link add eth0 netns "$net$i" type veth peer name "p$i" netns "${net}0"
        ip -n "${net}0" link set "p$i" master br0 up
        ip -n "$net$i" addr add "10.99.0.$i/24" dev eth0
        ip -n "$net$i" link set lo up
        ip -n "$net$i" link set eth0 up
    done
}

hosts_down() {
    for i in $(seq 0 "$1"); do
        ip netns pids "$net$i" 2>/dev/null | xargs -r kill -9
        ip netns del "$net$i" 2>/dev/null || :
    done
}

# hosts_run N PROGRAM [ARGUMENT...]: runs one rank of PROGRAM on each of the hosts 1 to N; mpirun runs on host 1.
hosts_run() {
    list=10.99.0.1:1
    for i in $(seq 2 "$1"); do list=$list,10.99.0.$i:1; done
    count=$1
    shift
    HOSTS_NET=$net "$here/tests/mpi/launcher.sh" ip netns exec "${net}1" unshare -u sh -c 'hostname h1; exec "$@"' sh mpirun --allow-run-as-root \
        --host "$list" -np "$count" --map-by node --bind-to none \
        --mca plm rsh --mca plm_rsh_agent "$here/tests/mpi/host_agent.sh" --mca plm_rsh_no_tree_spawn 1 \
        --mca pml ob1 --mca btl self,vader,tcp --mca btl_tcp_if_include 10.99.0.0/24 --mca oob_tcp_if_include 10.99.0.0/24 \
        --mca oob_tcp_keepalive_time 5 --mca oob_tcp_keepalive_intvl 2 --mca oob_tcp_keepalive_probes 3 \
        --mca mpi_yield_when_idle 1 "$@"
}

# host_unplug I disconnects host I from the network, host_plug I connects it again. host_kill I kills all processes of host I.
host_unplug() { ip -n "${net}0" link set "p$1" down; }
host_plug() { ip -n "${net}0" link set "p$1" up; }
host_kill() { ip netns pids "$net$1" | xargs -r kill -9; }
