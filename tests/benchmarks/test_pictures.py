"""The paper's pictures show what they say: colours where the truth puts them, landmarks where the model has them."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from posfeat.benchmarks.judged_pair import errors_by_homography, errors_by_poses, posed_pair
from posfeat.benchmarks.model_pictures import landmarks_of_model
from posfeat.benchmarks.pictures import landmarks, matches_by_error, panels, sparse_model, with_keypoints
from posfeat.cli import app
from posfeat.networks.checkpoint import ModelCard, save_checkpoint
from posfeat.networks.posfeat import ModelOptions, build_model
from posfeat.types import DataError, OptionsError
from tests.benchmarks.miniature_scene import NAMES, ProjectedFeatures, write_colmap_scene
from tests.benchmarks.miniature_sequences import KnownFeatures, write_sequence
from tests.benchmarks.miniature_world import World, pose_at, write_eth_scene

pytest.importorskip("matplotlib")
GREY = np.full((150, 200, 3), 128, np.uint8)


def decoded(data: bytes) -> np.ndarray:
    image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    return cv2.cvtColor(image, cv2.COLOR_BGR2RGB).astype(int)


def near(image: np.ndarray, x: float, y: float, reach: int = 4) -> np.ndarray:
    """The most colourful pixel near a place given as shares of width and height."""
    row, column = round(y * (image.shape[0] - 1)), round(x * (image.shape[1] - 1))
    patch = image[max(0, row - reach) : row + reach + 1, max(0, column - reach) : column + reach + 1].reshape(-1, 3)
    return patch[np.ptp(patch, axis=1).argmax()]


def test_matches_are_green_yellow_and_red_by_their_errors() -> None:
    xy = torch.tensor([[30.0, 20.0], [30.0, 70.0], [30.0, 120.0]])
    picture = decoded(matches_by_error(GREY, GREY, xy, xy, torch.tensor([1.0, 5.0, 50.0]), "png"))
    width = 2 * 200 + 200 // 50
    for (x, y), wanted in zip(xy.tolist(), ("green", "yellow", "red"), strict=True):
        red, green, blue = near(picture, x / width, (y + 0.5) / 150)
        found = (
            "green" if green > red + 30 else "yellow" if green > blue + 40 else "red" if red > green + 40 else "grey"
        )
        assert found == wanted


def test_landmarks_are_blue_and_other_keypoints_red() -> None:
    picture = decoded(landmarks(GREY, np.array([[50.0, 75.0], [150.0, 75.0]]), np.array([True, False]), "png"))
    blue, red = near(picture, 50 / 200, 0.5), near(picture, 150 / 200, 0.5)
    assert blue[2] > blue[0] + 50
    assert red[0] > red[2] + 50


def test_keypoints_are_dots_at_their_places() -> None:
    dotted = with_keypoints(GREY, np.array([[10.2, 20.4], [199.0, 149.0]]))
    assert tuple(dotted[20, 10]) == (38, 222, 129)
    assert tuple(dotted[149, 199]) == (38, 222, 129)
    assert len(np.unique(dotted[60:100, 60:100])) == 1


def test_panels_and_models_are_drawn_in_every_form() -> None:
    shape = decoded(panels([[GREY, GREY], [GREY, GREY]], ["a", "b"])).shape
    assert shape[1] > 800
    points, colours = np.random.default_rng(0).uniform(-1, 1, (50, 3)), np.full((50, 3), 200, np.uint8)
    poses = [pose_at(float(index)) for index in range(3)]
    for kind, start in (("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF"), ("jpg", b"\xff\xd8")):
        assert sparse_model(points, colours, poses, kind).startswith(start)


def test_errors_against_either_truth(tmp_path: Path) -> None:
    write_sequence(tmp_path / "v_wall")
    features = [KnownFeatures((3.0, 4.0)).features_of(tmp_path / f"{k}.ppm") for k in (1, 2)]
    found = errors_by_homography(tmp_path / "v_wall" / "H_1_2", features[0].keypoints, features[1].keypoints)
    assert found.numpy() == pytest.approx(np.full(40, 5.0), abs=1e-4)

    write_colmap_scene(tmp_path / "scene")
    pair = posed_pair(tmp_path / "scene", NAMES[0], NAMES[2])
    exact = [ProjectedFeatures().features_of(view.image_path) for view in (pair.view0, pair.view1)]
    assert float(errors_by_poses(pair, exact[0].keypoints, exact[1].keypoints).max()) < 1e-4
    with pytest.raises(DataError, match="0 posed photos named nobody"):
        posed_pair(tmp_path / "scene", "nobody", NAMES[0])


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["picture", *arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_the_verbs_draw_photos_of_ones_own(tmp_path: Path) -> None:
    write_sequence(tmp_path / "v_wall")
    torch.manual_seed(0)
    model = build_model(ModelOptions()).eval()
    save_checkpoint(tmp_path / "fresh.safetensors", model, ModelCard(name="fresh", trained=True))
    photos = [str(tmp_path / "v_wall" / f"{k}.ppm") for k in (1, 2)]
    weights = ["--weights", str(tmp_path / "fresh.safetensors")]
    run("scores", *photos, "-o", str(tmp_path / "scores.png"), *weights)
    run("descriptors", *photos, "-o", str(tmp_path / "descriptors.jpg"), *weights)
    truth = ["--homography", str(tmp_path / "v_wall" / "H_1_2"), "--method", "rootsift"]
    assert "within 3 px" in run("matches", *photos, *truth, "-o", str(tmp_path / "matches.pdf"))
    assert all((tmp_path / name).stat().st_size > 1000 for name in ("scores.png", "descriptors.jpg", "matches.pdf"))
    for wrong, message in ((["-o", "a.gif"], "a.gif"), ([*truth, "--scene", "x"], "either")):
        arguments = ["picture", "matches", *photos, *(truth if "-o" in wrong else []), *wrong]
        with pytest.raises(OptionsError, match=message):
            CliRunner().invoke(app, arguments, catch_exceptions=False)


def test_landmarks_and_points_of_a_model(tmp_path: Path) -> None:
    pytest.importorskip("pycolmap")
    names = [f"{index:04d}.ppm" for index in range(4)]
    world = World({name: pose_at(float(index)) for index, name in enumerate(names)})
    write_eth_scene(tmp_path / "scene", world)
    exported = world.export(tmp_path / "exact.h5")
    command = ["evaluate", "eth", str(tmp_path / "scene"), "--methods", str(exported), "-o", str(tmp_path / "out")]
    assert CliRunner().invoke(app, command, catch_exceptions=False).exit_code == 0
    (work,) = (tmp_path / "out" / "work" / "scene").iterdir()
    model, images = work / "models" / "0", tmp_path / "scene" / "images"
    _, name, succeeded, total = landmarks_of_model(model, work / "features.h5", images)
    assert name in names
    assert total == len(world.features_of(name))
    assert succeeded > 0.9 * total
    assert "became landmarks" in run(
        "landmarks", str(model), str(work / "features.h5"), str(images), "-o", str(tmp_path / "l.jpg")
    )
    run("model", str(model), "-o", str(tmp_path / "model.svg"))
    other = World({name: pose_at(float(index), 0.3) for index, name in enumerate(names)})
    with pytest.raises(DataError, match="not the feature file"):
        landmarks_of_model(model, other.export(tmp_path / "other.h5"), images, name)
