"""The folders that pages may look into, and nothing outside them.

Clients name things as ``root/path/in/it``; the root's name is the folder's own. What leads out of a root, by dots or by
links, and whatever is hidden, is refused the same way whether it exists or not.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from posfeat.data.images import shown
from posfeat.page.limits import RefusedError, not_found
from posfeat.types import DataError

MOST_FOLDERS = 5000  # looked into when searching below the roots
DEEPEST = 6


class Roots:
    """The folders that were given when the server was started."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._by_name: dict[str, Path] = {}
        for folder in folders:
            self.add(folder)

    def add(self, folder: Path) -> str:
        """One more root; its name."""
        if not folder.is_dir():
            raise DataError(f"there is no folder {folder}; check the name")
        folder = folder.resolve()
        for name, known in self._by_name.items():
            if known == folder:
                return name
        base = folder.name or "root"
        name, number = base, 1
        while name in self._by_name:
            number += 1
            name = f"{base}-{number}"
        self._by_name[name] = folder
        return name

    def names(self) -> list[str]:
        """Names of the roots."""
        return list(self._by_name)

    def resolve(self, reference: str) -> Path:
        """The path that a client means, or RefusedError."""
        name, _, inside = reference.partition("/")
        root = self._by_name.get(name)
        parts = inside.split("/") if inside else []
        if root is None or "\\" in inside or any(not part.isprintable() or part.startswith(".") for part in parts):
            raise _outside()
        try:
            path = Path(os.path.realpath(root.joinpath(*parts)))
            if not path.is_relative_to(root):
                raise _outside()
            there = path.exists()
        except (OSError, ValueError):  # names that are too long or hold what no name can
            raise _outside() from None
        if not there or "" in parts:
            raise not_found("there is no such file or folder in the folders that were given")
        return path

    def reference(self, path: Path) -> str | None:
        """How clients name a path; None outside the roots. The innermost root counts."""
        path = Path(os.path.realpath(path))
        inside = [(len(root.parts), name, root) for name, root in self._by_name.items() if path.is_relative_to(root)]
        if not inside:
            return None
        _, name, root = max(inside)
        relative = path.relative_to(root).as_posix()
        return name if relative == "." else f"{name}/{relative}"

    def holds(self, path: Path) -> bool:
        """Whether a path is in a root, links followed."""
        path = Path(os.path.realpath(path))
        return any(path.is_relative_to(root) for root in self._by_name.values())

    def require(self, paths: Iterable[Path]) -> None:
        """Refuse what a folder in a root has as links to elsewhere."""
        for path in paths:
            if not self.holds(path):
                raise RefusedError(
                    403, f"{shown(path.name)} is a link that leads out of the folders that were given to posfeat serve"
                )

    def hidden(self, text: str) -> str:
        """A message without the places of the roots on this machine."""
        for name, root in self._by_name.items():
            text = text.replace(f"{root}{os.sep}", f"{name}/").replace(str(root), name)
        return text

    def find(self, wanted: Callable[[Path], bool]) -> Iterator[tuple[str, Path]]:
        """Folders below the roots that are wanted, by their references; those below a wanted one are not looked into."""
        budget = MOST_FOLDERS
        for name, root in self._by_name.items():
            waiting = [(name, root, 0)]
            while waiting and budget:
                reference, folder, depth = waiting.pop()
                budget -= 1
                if wanted(folder):
                    yield reference, folder
                elif depth < DEEPEST:
                    below = sorted(subfolders(folder), reverse=True)
                    waiting += [(f"{reference}/{child}", folder / child, depth + 1) for child in below]


def subfolders(folder: Path) -> list[str]:
    """Names of the folders in a folder that are neither hidden nor links."""
    try:
        with os.scandir(folder) as entries:
            return [e.name for e in entries if not e.name.startswith(".") and e.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _outside() -> RefusedError:
    return RefusedError(403, "that path is outside the folders that were given to posfeat serve")
