"""Measures causal attention over a sequence divided among hosts: how much of the transfers is hidden by computation, and how much faster zig-zag
chunks are than contiguous chunks.

    python3 bench/sequence.py --program build/gcc/bench/bench_sequence [--hosts 2] [--length 16384] [--rates 1000,200] [--rounds 3]

The hosts are network namespaces of cluster_plan.py. `hidden` compares with a run whose network has no rate limit: the transfers of P hosts can be
hidden by (P - 1) / P of that run, because the last step of the ring sends nothing. 100 % means that the run takes no longer than that.
"""
import argparse
import json
import signal
import sys
from pathlib import Path

from cluster_plan import Hosts
from table import print_rows


def measure(hosts, mbit, a):
    """Returns the minimum of each time over all rounds."""
    if mbit:
        hosts.rate(mbit)
    done = hosts.shell(f'hosts_run {a.hosts} "$@"', [a.program, a.length, a.rounds])
    if done.returncode:
        sys.exit(f"{a.program}: exit status {done.returncode}\n{done.stderr.decode()}")
    return {"mbit": mbit} | json.loads(done.stdout)


def hidden(row, free, hosts):
    can_hide = min(row["transfers"], free["ring"] * (hosts - 1) / hosts)
    exposed = row["ring"] - free["ring"] - (row["transfers"] - can_hide)
    return 1 - exposed / can_hide


def rows(a):
    hosts = Hosts(a.hosts)
    try:
        free = measure(hosts, 0, a)
        yield free
        for mbit in map(int, a.rates.split(",")):
            row = measure(hosts, mbit, a)
            yield row | {"hidden": hidden(row, free, a.hosts)}
    finally:
        hosts.down()


def cells(r):
    share = f"{100 * r['hidden']:.0f} %" if r["mbit"] else "-"
    return [str(r["mbit"] or "-"), f"{r['ring']:.2f}", f"{r['transfers']:.2f}", share, f"{r['contiguous']:.2f}",
            f"{r['contiguous'] / r['ring']:.2f}", f"{1e6 * r['sum']:.0f}"]


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--program", required=True, help="bench_sequence")
    options.add_argument("--hosts", type=int, default=2)
    options.add_argument("--length", type=int, default=16384, help="tokens, a multiple of 2,048 per host")
    options.add_argument("--rates", default="1000,200", help="rates of the networks [Mbit/s]")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--json", action="store_true")
    a = options.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # runs the cleanup, which removes the hosts
    a.program = Path(a.program).resolve()
    columns = ["Mbit/s", "ring [s]", "transfers", "hidden", "contiguous", "ratio", "sum of 8 bytes [us]"]
    print_rows(rows(a), f"attention over {a.length} tokens on {a.hosts} hosts", columns, cells, a.json)


if __name__ == "__main__":
    main()
