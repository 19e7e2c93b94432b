"""What a data set holds and whether it can be trained on, as plain values for a JSON file and a table."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from posfeat.data.check import CheckOptions, PairCheck, Progress, SceneCheck, check_scene
from posfeat.data.distortion import is_distorted
from posfeat.data.images import image_size
from posfeat.data.pairs import PairOptions, choose_pairs, limit_pairs, pair_table
from posfeat.data.posed import Scene, listed_pairs, read_scene
from posfeat.types import Array, ImageError, Pair, View

_SAME_POSE = 1e-9
_MAX_OFF_CENTRE = 0.15
_FEW_PAIRS = 10
_NAMES_SHOWN = 5


@dataclass(frozen=True)
class SceneReport:
    """One scene in numbers; ``pairs`` are those to train on, ``checks`` what matching said (empty without matching)."""

    name: str
    layout: str
    num_views: int
    num_missing: int
    num_cameras: int
    sizes: dict[str, int]
    camera_models: dict[str, int]
    has_points: bool
    num_possible_pairs: int
    num_usable_pairs: int
    num_paired_views: int
    verdicts: dict[str, int]
    rotation_only_pairs: int
    planar_pairs: int
    median_error_px: float | None  # of all ratio-test matches of confirmed pairs: median over pairs
    agreeing_error_px: float | None  # of those on their lines
    wrong_views: list[str]
    warnings: list[str]
    histograms: dict[str, dict[str, list[float]]]
    pairs: list[Pair] = field(repr=False)
    checks: list[PairCheck] = field(repr=False)


def report_scene(
    scene: Scene,
    pair_options: PairOptions,
    check_options: CheckOptions | None,
    progress: Progress | None = None,
) -> SceneReport:
    """Read, choose, and (with ``check_options``) match and judge one scene."""
    missing: list[str] = []
    views = read_scene(scene, missing.append)
    fitting, warnings = _fitting_views(views)
    warnings = [*_missing_warning(missing), *warnings, *_pose_warnings(fitting), *_lens_warnings(fitting)]
    listed = listed_pairs(scene, fitting)
    if check_options is None:
        chosen = choose_pairs(fitting, pair_options) if listed is None else limit_pairs(listed, pair_options)
        result = SceneCheck(views=fitting, checks=[], wrong_views=[], pairs=chosen)
    else:
        result = check_scene(fitting, pair_options, check_options, listed, progress)
    return _report(scene, views, len(missing), result, warnings, check_options)


def plain(report: SceneReport) -> dict[str, Any]:
    """The report as JSON values; of the pairs and checks only the numbers."""
    values = {key: value for key, value in asdict(_without_objects(report)).items() if key not in ("pairs", "checks")}
    values["refuted_pairs"] = [
        {
            "name0": check.pair.view0.name,
            "name1": check.pair.view1.name,
            "matches": check.num_matches,
            "agreeing": check.num_agreeing,
        }
        for check in report.checks
        if check.verdict == "refuted"
    ]
    return values


def _without_objects(report: SceneReport) -> SceneReport:
    return SceneReport(**{**report.__dict__, "pairs": [], "checks": []})


def _report(
    scene: Scene,
    views: list[View],
    num_missing: int,
    result: SceneCheck,
    warnings: list[str],
    check_options: CheckOptions | None,
) -> SceneReport:
    confirmed = [check for check in result.checks if check.verdict == "confirmed"]
    paired = {view.name for pair in result.pairs for view in (pair.view0, pair.view1)}
    cameras = {(v.camera.width, v.camera.height, v.camera.matrix.tobytes(), v.camera.distortion) for v in views}
    return SceneReport(
        name=scene.name,
        layout=scene.layout,
        num_views=len(views),
        num_missing=num_missing,
        num_cameras=len(cameras),
        sizes=_counted(f"{view.camera.width}x{view.camera.height}" for view in views),
        camera_models=_counted(view.camera.model for view in views),
        has_points=any(view.point_ids is not None for view in views),
        num_possible_pairs=len(views) * (len(views) - 1) // 2,
        num_usable_pairs=len(result.pairs),
        num_paired_views=len(paired),
        verdicts=_counted(check.verdict for check in result.checks),
        rotation_only_pairs=sum(_turns_only(check, check_options) for check in confirmed),
        planar_pairs=sum(check.planar_share > 0.9 for check in confirmed),
        median_error_px=_median([check.median_error_px for check in confirmed]),
        agreeing_error_px=_median([check.agreeing_error_px for check in confirmed]),
        wrong_views=result.wrong_views,
        warnings=[*warnings, *_result_warnings(views, result, paired)],
        histograms=_histograms(result),
        pairs=result.pairs,
        checks=result.checks,
    )


def _turns_only(check: PairCheck, options: CheckOptions | None) -> bool:
    side = max(check.pair.view0.camera.width, check.pair.view0.camera.height)
    return options is not None and check.parallax_px < options.min_parallax_share * side


def _counted(values: Any) -> dict[str, int]:
    return dict(Counter(values).most_common())


def _median(values: list[float]) -> float | None:
    finite = [value for value in values if np.isfinite(value)]
    return round(float(np.median(finite)), 4) if finite else None


def _missing_warning(missing: list[str]) -> list[str]:
    return [f"{len(missing)} pictures are missing, e.g. {missing[0].split(': ', 1)[-1]}"] if missing else []


def _fitting_views(views: list[View]) -> tuple[list[View], list[str]]:
    """Views whose picture has the size that the camera says; matching others would be nonsense."""
    fitting, wrong = [], []
    for view in views:
        try:
            size = image_size(view.image_path)
        except ImageError as error:
            wrong.append(f"{view.name} ({error})")
            continue
        expected = (view.camera.width, view.camera.height)
        if size == expected:
            fitting.append(view)
        else:
            wrong.append(f"{view.name} is {size[0]}x{size[1]}, its camera {expected[0]}x{expected[1]}")
    return fitting, [
        f"{len(wrong)} pictures do not fit their cameras and are left out: {_some(wrong)}"
    ] if wrong else []


def _pose_warnings(views: list[View]) -> list[str]:
    """Views that share one pose exactly: copies, or poses that were never filled in."""
    if not views:
        return []
    rounded = [np.round(view.cam_from_world / _SAME_POSE).tobytes() for view in views]
    counts = Counter(rounded)
    same = [view.name for view, key in zip(views, rounded, strict=True) if counts[key] > 1]
    return [f"{len(same)} views share their exact pose with another: {_some(same)}"] if same else []


def _lens_warnings(views: list[View]) -> list[str]:
    """Principal points far from the middle, which usually means cropped or mixed-up pictures."""
    off = [
        view.name
        for view in views
        if abs(view.camera.matrix[0, 2] / view.camera.width - 0.5) > _MAX_OFF_CENTRE
        or abs(view.camera.matrix[1, 2] / view.camera.height - 0.5) > _MAX_OFF_CENTRE
    ]
    warnings = [f"{len(off)} views have their principal point far from the middle: {_some(off)}"] if off else []
    if any(is_distorted(view.camera) for view in views):
        warnings.append("lenses are distorted: photos are undistorted when they are loaded")
    return warnings


def _result_warnings(views: list[View], result: SceneCheck, paired: set[str]) -> list[str]:
    warnings = []
    if result.wrong_views:
        warnings.append(
            f"{len(result.wrong_views)} views have wrong poses and are left out: {_some(result.wrong_views)}"
        )
    alone = [view.name for view in views if view.name not in paired and view.name not in result.wrong_views]
    if alone:
        warnings.append(f"{len(alone)} views are in no usable pair: {_some(alone)}")
    if len(result.pairs) < _FEW_PAIRS:
        warnings.append(f"only {len(result.pairs)} usable pairs")
    return warnings


def _some(names: list[str]) -> str:
    return ", ".join(names[:_NAMES_SHOWN]) + (" ..." if len(names) > _NAMES_SHOWN else "")


def _histograms(result: SceneCheck) -> dict[str, dict[str, list[float]]]:
    """Overlap, rotation and baseline of the usable pairs; the baseline in units of the median one of all pairs."""
    table = pair_table(result.views)
    row = {(a, b): i for i, (a, b) in enumerate(zip(table.index0.tolist(), table.index1.tolist(), strict=True))}
    index = {view.name: i for i, view in enumerate(result.views)}
    ends = [sorted((index[pair.view0.name], index[pair.view1.name])) for pair in result.pairs]
    rows = [row[low, high] for low, high in ends]
    typical = float(np.median(table.baseline)) if len(table.baseline) else 1.0
    return {
        "overlap": _histogram(np.array([pair.overlap for pair in result.pairs]), np.linspace(0, 1, 11)),
        "rotation_deg": _histogram(table.rotation_deg[rows], np.linspace(0, 180, 19)),
        "baseline_ratio": _histogram(table.baseline[rows] / (typical or 1.0), np.linspace(0, 4, 17)),
        "parallax_deg": _histogram(table.parallax_deg[rows], np.linspace(0, 90, 19)),
    }


def _histogram(values: Array, edges: Array) -> dict[str, list[float]]:
    counts, _ = np.histogram(np.clip(values[np.isfinite(values)], edges[0], edges[-1]), bins=edges)
    return {"edges": edges.round(4).tolist(), "counts": counts.tolist()}
