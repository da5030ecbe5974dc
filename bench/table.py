"""Prints the rows of a benchmark: as a Markdown table while they are measured, or as JSON at the end."""
import json
import sys


def print_rows(rows, heading, columns, cells, as_json):
    """`rows` is a generator that measures one row at a time; `cells` returns the cells of a row, in the order of `columns`."""
    if as_json:
        json.dump(list(rows), sys.stdout, indent=1)
        return
    print(f"{heading}\n\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}", flush=True)
    for row in rows:
        print(f"| {' | '.join(cells(row))} |", flush=True)
