"""The whole table of speed and memory, every row a ratio to a named peer in the same run; smaller is better.

    python benches/all.py                       # all, about five minutes on two cores
    python benches/all.py --only matching cold_start
    python benches/all.py --check               # exit code 1 where a ratio is over 1.2 times the stored one
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
SECONDS = 600  # for one bench


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
    module = importlib.import_module(bench)
    if not hasattr(module, "rows"):
        print(f"{bench} is run by itself: python benches/{bench}.py", file=sys.stderr)
    print(json.dumps([dataclasses.asdict(row) for row in module.rows()] if hasattr(module, "rows") else []))


def line(row: Row, known: float | None) -> str:
    """One row of the table."""
    target = "" if row.target is None else f"{row.target:.2f} {'met' if row.ratio <= row.target else 'MISSED'}"
    cpu = "" if row.cpu_ratio is None else f"{row.cpu_ratio:.2f}"
    past = "" if known is None else f"{known:.2f}{' SLOWER' if row.ratio > REGRESSION * known else ''}"
    values = f"{row.ours:9.1f} {row.theirs:9.1f} {row.unit:3} {row.ratio:6.2f} {cpu:>5}"
    return f"{row.name:42} {row.peer:24} {values}  {target:12} {past}"


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
    stored = json.loads(BASELINE.read_text()) if BASELINE.is_file() else {}
    known: dict[str, float] = stored.get("ratios", {})
    there = [bench for bench in arguments.only or BENCHES if Path(__file__).with_name(f"{bench}.py").is_file()]
    print(f"{arguments.threads} threads, {torch.cpu.get_capabilities().get('cpu_name', 'processor')}; least times")
    print(f"{'':42} {'peer':24} {'ours':>9} {'peer':>9} {'':3} {'ratio':>6} {'cpu':>5}  {'target':12} baseline")
    start, found = time.perf_counter(), list[Row]()
    for bench in there:
        for row in rows_of(bench, arguments.threads):
            print(line(row, known.get(row.key)), flush=True)
            found.append(row)
    print(f"{time.perf_counter() - start:.0f} s")
    if arguments.write_baseline:
        ratios = known | {row.key: round(row.ratio, 3) for row in found}
        BASELINE.write_text(json.dumps({"threads": arguments.threads, "ratios": ratios}, indent=1) + "\n")
    slower = [row.key for row in found if row.key in known and row.ratio > REGRESSION * known[row.key]]
    if arguments.check and slower:
        print(f"slower than the baseline by more than {REGRESSION - 1:.0%}: {'; '.join(slower)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
