"""All options of an adaptation."""

from __future__ import annotations

from dataclasses import dataclass

from posfeat.adapt.measure import MeasureOptions
from posfeat.adapt.place_split import SplitOptions
from posfeat.adapt.recipe import RecipeOptions
from posfeat.adapt.source import PairMethod
from posfeat.data.check import CheckOptions
from posfeat.data.pairs import PairOptions
from posfeat.options import check_options, described, nested
from posfeat.pipeline.choose_cameras import Sharing

_QUICK_CHECK = CheckOptions(max_keypoints=1000, longest_px=640, max_pairs_per_scene=1000)


def _quick_check() -> CheckOptions:
    return _QUICK_CHECK


@dataclass(frozen=True)
class AdaptOptions:
    """What decides an adaptation, besides its source and the weights it starts from."""

    minutes: float = described(20.0, "minutes of tuning; reading, checking and measuring come on top", low=0.01)
    rounds: int = described(1, "times to reconstruct a folder of photos and tune, within the minutes", low=1, high=5)
    seed: int = described(0, "seed of all draws", low=0)
    fewest_photos: int = described(20, "with fewer photos adaptation is refused", low=4)
    most_photos: int = described(1500, "of more photos, so many are taken, evenly", low=20)
    longest_px: int = described(1024, "photos are shrunk to this", low=64)
    keypoints: int = described(2048, "keypoints of a photo where a folder is reconstructed", low=64)
    match_pairs: PairMethod = described("auto", "which photos of a folder are matched; sequential for video frames")
    share_camera: Sharing = described(
        "auto", "which photos of a folder have one camera: auto (by EXIF, else each its own), single, folder, image"
    )
    trust_poses: bool = described(False, "do not verify poses by matching")
    count_registered: bool = described(True, "reconstruct the held-out photos before and after (needs pycolmap)")
    pairs: PairOptions = nested(PairOptions, "which pairs are usable")
    check: CheckOptions = nested(_quick_check, "how poses are verified")  # type: ignore[arg-type]
    split: SplitOptions = nested(SplitOptions, "which photos are held out")
    tune: RecipeOptions = nested(RecipeOptions, "how weights are tuned")
    measure: MeasureOptions = nested(MeasureOptions, "what is measured before and after")

    def __post_init__(self) -> None:
        check_options(self)
