"""The whole benchmark from a folder to results: what the command line and a script call."""

from __future__ import annotations

import functools
import json
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from posfeat.benchmarks.homography_scores import Progress
from posfeat.benchmarks.hpatches import read_sequences
from posfeat.benchmarks.hpatches_report import write_homography_report
from posfeat.benchmarks.hpatches_results import HomographyResults, score_methods
from posfeat.benchmarks.methods import MethodSetting, open_method
from posfeat.benchmarks.provenance import data_fingerprint, gather_provenance
from posfeat.benchmarks.robust_estimation import estimate_homography, has_poselib
from posfeat.matching import MatchOptions, match
from posfeat.networks.extraction import ExtractionOptions
from posfeat.options import apply_overrides, options_from_mapping, options_to_mapping
from posfeat.types import OptionsError


def run_hpatches(
    root: Path,
    methods: Sequence[str],
    max_keypoints: int,
    output: Path,
    cache: Path | None,
    overrides: list[str],
    progress: Callable[[str], AbstractContextManager[Progress | None]],
) -> HomographyResults:
    """Score all methods on the sequences under ``root`` and write the report to ``output``."""
    sequences = read_sequences(root)
    extraction = options_from_mapping(ExtractionOptions, apply_overrides({}, overrides, _value))
    matching = MatchOptions()
    setting = MethodSetting(root, max_keypoints, extraction, cache)
    files = (file for sequence in sequences for file in (*sequence.images, *sequence.homography_files))
    provenance = gather_provenance(
        command=shlex.join(["posfeat", *sys.argv[1:]]),
        options={
            "max_keypoints": max_keypoints,
            "extraction": options_to_mapping(extraction),
            "matching": options_to_mapping(matching),
        },
        data=data_fingerprint(root, files),
        seed=0,
    )
    scored, skipped, examples = score_methods(
        sequences,
        {name: functools.partial(open_method, name, setting) for name in _distinct(methods)},
        functools.partial(match, options=matching),
        estimate_homography if has_poselib() else None,
        progress,
    )
    results = HomographyResults(provenance, scored, skipped)
    write_homography_report(output, results, sequences, examples)
    return results


def _distinct(methods: Sequence[str]) -> list[str]:
    if len(set(methods)) < len(methods):
        raise OptionsError("a method stands twice after --methods; give each once")
    return list(methods)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
