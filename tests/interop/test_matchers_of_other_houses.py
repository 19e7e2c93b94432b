"""vismatch's and glue-factory's interfaces without these packages, and inside them where they are installed."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from posfeat.data.images import write_image
from posfeat.interop.gluefactory import GlueFactoryExtractor
from posfeat.interop.vismatch import VismatchMatcher
from posfeat.networks.posfeat import PoSFeat
from posfeat.types import OptionsError

Photos = tuple[np.ndarray, np.ndarray]
VISMATCH_KEYS = {
    *("num_inliers", "H", "matched_confidences"),
    *(f"{kind}_kpts{i}" for kind in ("all", "matched", "inlier") for i in (0, 1)),
    *("all_desc0", "all_desc1"),
}


def tensor_of(rgb: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(rgb).permute(2, 0, 1).float() / 255


def test_vismatch_result(model: PoSFeat, two_photos: Photos, tmp_path: Path) -> None:
    matcher = VismatchMatcher(model, 300)
    result = matcher(*map(tensor_of, two_photos))
    assert set(result) == VISMATCH_KEYS
    assert result["matched_kpts0"].shape == result["matched_kpts1"].shape == (len(result["matched_confidences"]), 2)
    assert result["all_desc0"].shape == (len(result["all_kpts0"]), 128)
    assert result["num_inliers"] == len(result["inlier_kpts0"]) > 20
    np.testing.assert_allclose(result["H"] @ [10, 10, 1], [42, 26, 1], atol=0.5)
    write_image(tmp_path / "a.png", two_photos[0])
    floats = np.moveaxis(two_photos[1], 2, 0).astype(np.float32) / 255
    again = matcher(tmp_path / "a.png", floats)
    np.testing.assert_array_equal(again["matched_kpts1"], result["matched_kpts1"])
    np.testing.assert_array_equal(matcher.extract(two_photos[0])["all_kpts0"], result["all_kpts0"])


def test_vismatch_itself(model: PoSFeat, two_photos: Photos) -> None:
    base: Any = pytest.importorskip("vismatch.base_matcher", exc_type=ImportError)

    class Ours(base.BaseMatcher):  # type: ignore[misc, name-defined]
        """What docs/interop.md shows."""

        def __init__(self) -> None:
            super().__init__("cpu")
            self.inner = VismatchMatcher(model, 300)

        def _forward(self, img0: torch.Tensor, img1: torch.Tensor) -> Any:
            return self.inner._forward(img0, img1)

    theirs, ours = Ours()(*map(tensor_of, two_photos)), VismatchMatcher(model, 300)(*map(tensor_of, two_photos))
    assert set(theirs) == set(ours)
    np.testing.assert_array_equal(theirs["matched_kpts0"], ours["matched_kpts0"])


def test_gluefactory_extractor(model: PoSFeat, two_photos: Photos) -> None:
    assert importlib.import_module("posfeat.interop.gluefactory").__main_model__ is GlueFactoryExtractor
    extractor = GlueFactoryExtractor(
        {"max_num_keypoints": 2048, "force_num_keypoints": True, "trainable": False}, model
    )
    images = torch.stack([*map(tensor_of, two_photos)])
    found = extractor({"image": images, "image_size": torch.tensor([[160, 128], [100, 128]])})
    assert found["keypoints"].shape == (2, 2048, 2)
    assert found["descriptors"].shape == (2, 2048, 128)
    assert found["keypoint_scores"].shape == (2, 2048)
    assert found["keypoints"][1, :, 0].max() < 100  # the rest of image 1 is padding
    features = model.extract(two_photos[0], 2048)
    torch.testing.assert_close(found["keypoints"][0, : len(features)], features.keypoints + 0.5)
    assert (found["keypoint_scores"][0, len(features) :] == 0).all()
    torch.testing.assert_close(found["descriptors"].norm(dim=-1), torch.ones(2, 2048))
    assert not any(parameter.requires_grad for parameter in extractor.parameters())
    with pytest.raises(OptionsError, match="force_num_keypoints"):
        GlueFactoryExtractor({}, model)({"image": images, "image_size": torch.tensor([[160, 128], [100, 128]])})


def test_gluefactory_itself(two_photos: Photos, untrained_checkpoint: Path) -> None:
    pipeline: Any = pytest.importorskip("gluefactory.models.two_view_pipeline", exc_type=ImportError)
    extractor = {"name": "posfeat.interop.gluefactory", "weights": str(untrained_checkpoint), "max_num_keypoints": 300}
    two_views = pipeline.TwoViewPipeline(
        {"extractor": extractor, "matcher": {"name": "gluefactory.models.matchers.nearest_neighbor_matcher"}}
    ).eval()
    views = [{"image": tensor_of(photo)[None], "image_size": torch.tensor([[160.0, 128.0]])} for photo in two_photos]
    found = two_views({"view0": views[0], "view1": views[1]})
    matched = found["matches0"][0] >= 0
    moved = found["keypoints1"][0][found["matches0"][0][matched]] - found["keypoints0"][0][matched]
    assert ((moved - torch.tensor([32.0, 16.0])).abs() < 0.5).all(dim=1).float().mean() > 0.5
