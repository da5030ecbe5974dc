# hosts.sh - several hosts on one machine: network namespaces with addresses 10.99.0.1 to 10.99.0.N, joined by a bridge in a
# namespace of its own, so nothing changes in the machine's own network. Sourced by tests; requires root and iproute2.
# Namespaces are named $net0 (the bridge) and $net1 to $netN. Each host also has its own host name, h1 to hN, in which Open MPI
# sees another machine, whose ranks it reaches over TCP.
# shellcheck shell=sh disable=SC2154 # here: of tests/cli/lib.sh
net=mha$$-

# hosts_possible: true if this process may create namespaces, and mpirun is Open MPI's, whose parameters these hosts need.
hosts_possible() {
    [ "$(id -u)" -eq 0 ] && command -v ip >/dev/null && mpirun --version 2>&1 | grep -q 'Open MPI' || return 1
    ip netns add "${net}0" 2>/dev/null && unshare -u true 2>/dev/null && ip -n "${net}0" link add br0 type bridge 2>/dev/null && return
    ip netns del "${net}0" 2>/dev/null
    return 1
}

# hosts_up N: N hosts, after hosts_possible. hosts_down N removes them.
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

# hosts_run N PROGRAM [ARGUMENT...]: one rank on each of the hosts 1 to N; mpirun runs on host 1.
hosts_run() {
    list=10.99.0.1:1
    for i in $(seq 2 "$1"); do list=$list,10.99.0.$i:1; done
    count=$1
    shift
    HOSTS_NET=$net ip netns exec "${net}1" unshare -u sh -c 'hostname h1; exec "$@"' sh mpirun --allow-run-as-root \
        --host "$list" -np "$count" --map-by node --bind-to none \
        --mca plm rsh --mca plm_rsh_agent "$here/tests/mpi/host_agent.sh" --mca plm_rsh_no_tree_spawn 1 \
        --mca pml ob1 --mca btl self,vader,tcp --mca btl_tcp_if_include 10.99.0.0/24 --mca oob_tcp_if_include 10.99.0.0/24 \
        --mca oob_tcp_keepalive_time 5 --mca oob_tcp_keepalive_intvl 2 --mca oob_tcp_keepalive_probes 3 \
        --mca mpi_yield_when_idle 1 "$@"
}

# host_unplug I, host_plug I: the network cable of host I. host_kill I: ends all its processes.
host_unplug() { ip -n "${net}0" link set "p$1" down; }
host_plug() { ip -n "${net}0" link set "p$1" up; }
host_kill() { ip netns pids "$net$1" | xargs -r kill -9; }
