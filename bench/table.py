"""Prints rows of a benchmark as they are measured: a Markdown table, or JSON at the end."""
import json
import sys


def tell(rows, heading, columns, cells, as_json):
    """`rows` measures one at a time; `cells` are what the table shows of one, below the names in `columns`."""
    if as_json:
        json.dump(list(rows), sys.stdout, indent=1)
        return
    print(f"{heading}\n\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}", flush=True)
    for row in rows:
        print(f"| {' | '.join(cells(row))} |", flush=True)
