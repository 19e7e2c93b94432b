"""The whole table of speed and memory, every row a ratio to a named peer in the same run; smaller is better.

    python benches/all.py                       # all, about ten minutes on two cores
    python benches/all.py --only matching cold_start
    python benches/all.py --check               # exit code 1 where a ratio is over 1.2 times the stored one, or missing
    python benches/all.py --write-baseline      # store this run's ratios for --check

Each bench runs in a process of its own. Peers that are not installed are named and left out.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from in_turn import Row

BENCHES = (
    "extraction",
    "matching",
    "cold_start",
    "large_image",
    "hpatches_scoring",
    "line_to_window",
    "paper_network",
    "extract_memory",
    "ray_workers",
)
BASELINE = Path(__file__).with_name("baseline.json")
REGRESSION = 1.2
SECONDS = 1200  # for one bench


def rows_of(bench: str, threads: int) -> list[Row]:
    """What a bench measures, in a process of its own; nothing, and a line, where it cannot."""
    command = [sys.executable, __file__, "--bench", bench, "--threads", str(threads)]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=SECONDS)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        print(f"{bench}: left out, {error}", file=sys.stderr)
        return []
    return [Row(**row) for row in json.loads(done.stdout.splitlines()[-1])]


def measure(bench: str) -> None:
    """In the process of one bench: print its rows as JSON."""
    print(json.dumps([dataclasses.asdict(row) for row in importlib.import_module(bench).rows()]))


def is_slower(row: Row, known: Mapping[str, float]) -> bool:
    """Whether a ratio is surely worse than the stored one."""
    return row.key in known and row.ratio > REGRESSION * known[row.key]


def line(row: Row, known: Mapping[str, float]) -> str:
    """One row of the table."""
    target = "" if row.target is None else f"{row.target:.2f} {'met' if row.ratio <= row.target else 'MISSED'}"
    cpu = "" if row.cpu_ratio is None else f"{row.cpu_ratio:.2f}"
    past = f"{known[row.key]:.2f}{' SLOWER' if is_slower(row, known) else ''}" if row.key in known else ""
    values = f"{row.ours:9.1f} {row.theirs:9.1f} {row.unit:3} {row.ratio:6.2f} {cpu:>5}"
    return f"{row.name:42} {row.peer:24} {values}  {target:12} {past}"


def complaints(found: Sequence[Row], known: Mapping[str, float], *, complete: bool) -> list[str]:
    """What is slower than the baseline; of a run of all benches, also what only the baseline has."""
    slower = [f"{row.key}: {row.ratio:.2f}, was {known[row.key]:.2f}" for row in found if is_slower(row, known)]
    measured = {row.key for row in found}
    return slower + [f"{key}: left out" for key in known if complete and key not in measured]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=BENCHES)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--write-baseline", action="store_true")
    parser.add_argument("--bench", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.bench:
        measure(arguments.bench)
        return 0
    if arguments.check and not BASELINE.is_file():
        parser.error(f"there is no {BASELINE.name} to check against; make it with --write-baseline")
    stored = json.loads(BASELINE.read_text()) if BASELINE.is_file() else {}
    known: dict[str, float] = stored.get("ratios", {})
    print(f"{arguments.threads} threads, {torch.cpu.get_capabilities().get('cpu_name', 'processor')}; least times")
    print(f"{'':42} {'peer':24} {'ours':>9} {'peer':>9} {'':3} {'ratio':>6} {'cpu':>5}  {'target':12} baseline")
    start, found = time.perf_counter(), list[Row]()
    for bench in arguments.only or BENCHES:
        for row in rows_of(bench, arguments.threads):
            print(line(row, known), flush=True)
            found.append(row)
    print(f"{time.perf_counter() - start:.0f} s")
    if arguments.write_baseline:
        ratios = (known if arguments.only else {}) | {row.key: round(row.ratio, 3) for row in found}
        BASELINE.write_text(json.dumps({"threads": arguments.threads, "ratios": ratios}, indent=1) + "\n")
    wrong = complaints(found, known, complete=not arguments.only) if arguments.check else []
    for complaint in wrong:
        print(f"over {REGRESSION:g} times the baseline or missing: {complaint}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
