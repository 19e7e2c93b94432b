"""Does a data set lie as a benchmark needs it? What was found, and what is wrong, in sentences."""

from __future__ import annotations

from pathlib import Path

from posfeat.benchmarks.aachen_data import HOW_TO_GET as HOW_TO_GET_AACHEN
from posfeat.benchmarks.aachen_data import check_aachen, versions_of
from posfeat.benchmarks.eth import HOW_TO_GET as HOW_TO_GET_SCENES
from posfeat.benchmarks.eth import check_scenes, holds_scenes
from posfeat.benchmarks.hpatches import HOW_TO_GET as HOW_TO_GET_SEQUENCES
from posfeat.benchmarks.hpatches import check_sequences, holds_sequences
from posfeat.benchmarks.pose_pairs import HOW_TO_GET as HOW_TO_GET_POSED
from posfeat.benchmarks.pose_pairs import check_pair_lists, read_views
from posfeat.types import PosfeatError


def check_layout(root: Path) -> tuple[list[str], list[str]]:
    """What was found under ``root``, and what is wrong; nothing is wrong where the second list is empty."""
    if root.is_dir() and holds_sequences(root):
        return check_sequences(root)
    if root.is_dir() and (versions_of(root) or (root / "3D-models").is_dir()):
        return check_aachen(root)
    if root.is_dir() and holds_scenes(root):
        return check_scenes(root)
    if root.is_dir() and any(lists := check_pair_lists(root)):
        return lists
    problems: list[str] = []
    try:
        views = read_views(root, problems.append)
    except PosfeatError as error:
        return [], [
            f"neither image sequences, Aachen, scenes of ETH's benchmark nor posed photos: {error}",
            f"for posfeat evaluate hpatches: {HOW_TO_GET_SEQUENCES}",
            f"for posfeat evaluate aachen: {HOW_TO_GET_AACHEN}",
            f"for posfeat evaluate eth: {HOW_TO_GET_SCENES}",
            f"for posfeat evaluate pose: {HOW_TO_GET_POSED}",
        ]
    scenes = {view.scene for view in views}
    return [f"{len(views)} posed photos in {len(scenes)} scenes, for posfeat evaluate pose"], problems
