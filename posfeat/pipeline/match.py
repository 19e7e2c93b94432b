"""A feature store and a list of pairs -> a match store. Goes on where it stopped."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from posfeat.data.images import shown
from posfeat.matching import MatchOptions, match
from posfeat.options import options_to_mapping
from posfeat.pipeline.feature_store import FeatureStore, MatchStore
from posfeat.pipeline.shards import Shards
from posfeat.pipeline.write_batch import WriteBatch
from posfeat.types import DataError, Matches, PosfeatError, StoreError

FEATURES_IN_MEMORY = 32  # images whose features are kept at hand

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class MatchingReport:
    """What became of the pairs; ``failures`` holds a line for each that could not be matched."""

    num_matched: int
    num_known: int  # in the store already
    failures: tuple[str, ...]


def match_pairs(
    features_path: Path | Shards,
    pairs: Sequence[tuple[str, str]],
    matches_path: Path,
    options: MatchOptions | None = None,
    *,
    progress: Progress | None = None,
    on_failure: Callable[[str], None] | None = None,
) -> MatchingReport:
    """Match every pair of images into a store, leaving out those that the store has (in either order)."""
    options = options or MatchOptions()
    failures: list[str] = []
    num_matched = num_known = 0
    with (
        FeatureStore(features_path) as features,
        MatchStore(matches_path, "a", {"matching": options_to_mapping(options)}) as store,
        WriteBatch[tuple[str, str, Matches, int]](store.write_all) as batch,
    ):
        read = functools.lru_cache(FEATURES_IN_MEMORY)(features.read)
        stored: dict[str, str] = {}
        for done, (name0, name1) in enumerate(_each_once(pairs), start=1):
            try:
                for name in (name0, name1):
                    _refuse_clash(stored, name)
                if (name0, name1) in store or (name1, name0) in store:
                    num_known += 1
                    continue
                features0, features1 = read(name0), read(name1)
                batch.add((name0, name1, match(features0, features1, options), len(features0)))
                num_matched += 1
            except PosfeatError as error:
                failures.append(str(error))
                if on_failure:
                    on_failure(str(error))
            if batch.write_if_due() and progress:
                progress(done, len(pairs))
    if progress:
        progress(len(pairs), len(pairs))
    return MatchingReport(num_matched, num_known, tuple(failures))


def all_pairs(names: Sequence[str]) -> list[tuple[str, str]]:
    """Every image with every other, once."""
    return list(combinations(names, 2))


def read_pairs(path: Path, names: Collection[str]) -> list[tuple[str, str]]:
    """Pairs from a text file: two names a line, with a space or a tab between them; empty lines and # lines are skipped.

    Names may hold spaces: a line is cut where both of its parts are among ``names``.
    """
    return list(iterate_pairs(path, names))


def iterate_pairs(path: Path, names: Collection[str]) -> Iterator[tuple[str, str]]:
    """What read_pairs gives, a line at a time: lists may be longer than memory."""
    known = set(names)
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                if line.strip() and not line.startswith("#"):
                    yield _cut(line.strip(), known, f"line {number} of {shown(path)}")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise DataError(f"cannot read the pairs in {shown(path)}: {reason}; check the file") from None


def write_pairs(path: Path, pairs: Sequence[tuple[str, str]]) -> None:
    """The file that read_pairs reads; a tab separates names that hold spaces."""
    lines = (("\t" if " " in name0 + name1 else " ").join((name0, name1)) for name0, name1 in pairs)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _cut(line: str, known: set[str], where: str) -> tuple[str, str]:
    cuts = [(line[:at].strip(), line[at:].strip()) for at, c in enumerate(line) if c in " \t"]
    good = sorted({cut for cut in cuts if cut[0] in known and cut[1] in known})
    if len(good) == 1:
        return good[0]
    if good:
        raise DataError(f"{where} can be read as two names in {len(good)} ways; put a tab between them")
    tabbed = line.split("\t")
    parts = tabbed if len(tabbed) == 2 else line.split()
    if len(parts) != 2:
        raise DataError(f"{where} does not hold two names of images in the feature file: {line[:80]!r}")
    return parts[0].strip(), parts[1].strip()


def _refuse_clash(stored: dict[str, str], name: str) -> None:
    """Refuse an image that another one's matches would be taken for; ``stored`` holds the names so far."""
    first = stored.setdefault(name.replace("/", "-"), name)
    if first != name:
        raise StoreError(f"{name} cannot be told from {first} in a match file, where '/' is written '-'; rename one")


def _each_once(pairs: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """The pairs without repetitions, turned or not."""
    seen: set[frozenset[str]] = set()
    for pair in pairs:
        key = frozenset(pair)
        if key not in seen:
            seen.add(key)
            yield pair
