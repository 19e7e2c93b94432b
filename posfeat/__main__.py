"""``python -m posfeat`` is the command ``posfeat``."""

from __future__ import annotations

from posfeat.cli import main

if __name__ == "__main__":
    main()
