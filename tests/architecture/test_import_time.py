"""``import posfeat`` costs next to nothing beyond torch, and help comes at once and without torch.

The budgets are 0.3 s and 0.5 s on an idle machine; what is asserted leaves room for a busy one.
"""

from __future__ import annotations

import subprocess
import sys
import time

ROOM = 4.0


def seconds_of(code: str) -> float:
    """What the printed number says, the best of three runs."""
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(3)]
    return min(float(run.stdout) for run in runs)


def test_import_adds_little_to_torch() -> None:
    code = "import torch, time; t = time.perf_counter(); import posfeat, posfeat.types; print(time.perf_counter() - t)"
    seconds = seconds_of(code)
    print(f"import posfeat beyond torch: {seconds:.3f} s")
    assert seconds < 0.3 * ROOM


def test_import_alone_loads_no_torch() -> None:
    code = "import sys, posfeat; print(int('torch' in sys.modules or 'cv2' in sys.modules))"
    assert seconds_of(code) == 0


def test_help_is_instant() -> None:
    times = []
    for _ in range(3):
        start = time.perf_counter()
        run = subprocess.run([sys.executable, "-m", "posfeat", "--help"], capture_output=True, text=True, check=True)
        times.append(time.perf_counter() - start)
        assert "match" in run.stdout
    print(f"posfeat --help: {min(times):.3f} s")
    assert min(times) < 0.5 * ROOM


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\nsys.argv = ['posfeat', '--help']\nfrom posfeat.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print([m for m in ('torch', 'numpy', 'cv2', 'h5py', 'rich') if m in sys.modules], file=sys.stderr)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stderr.strip() == "[]"
