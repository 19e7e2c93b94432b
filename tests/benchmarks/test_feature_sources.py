from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from posfeat.benchmarks.feature_sources import CachedMethod, NpzFolder
from posfeat.benchmarks.methods import MethodSetting, Ours, open_method
from posfeat.matching import MatchOptions
from posfeat.networks.checkpoint import ModelCard, save_checkpoint
from posfeat.networks.extraction import ExtractionOptions
from posfeat.networks.posfeat import ModelOptions, PoSFeat, build_model
from posfeat.pipeline.feature_store import FeatureStore
from posfeat.types import Features, StoreError
from tests.benchmarks.miniature_sequences import HEIGHT, WIDTH, photo, write_ppm, write_sequence


class Counting:
    """A method that counts its calls."""

    name = "counting"
    own_matching = MatchOptions()

    def __init__(self, fingerprint: str = "counting 1") -> None:
        self.fingerprint = fingerprint
        self.calls = 0

    def extract(self, image: np.ndarray, max_keypoints: int) -> Features:
        self.calls += 1
        mean = torch.from_numpy(image.astype(np.float32)).mean()
        keypoints = torch.full((max_keypoints, 2), float(mean))
        return Features(
            keypoints, torch.ones(max_keypoints), torch.eye(max_keypoints), (image.shape[1], image.shape[0])
        )


def same(a: Features, b: Features) -> bool:
    tensors = ((a.keypoints, b.keypoints), (a.scores, b.scores), (a.descriptors, b.descriptors))
    return a.image_size == b.image_size and all(torch.equal(x, y) for x, y in tensors)


def test_a_second_run_reads_exactly_what_the_first_found(tmp_path: Path) -> None:
    write_ppm(tmp_path / "a.ppm", photo(0))
    first, second = Counting(), Counting()
    found = CachedMethod(first, 5, tmp_path / "cache").features_of(tmp_path / "a.ppm")
    again = CachedMethod(second, 5, tmp_path / "cache").features_of(tmp_path / "a.ppm")
    assert same(found, again)
    assert (first.calls, second.calls) == (1, 0)


@pytest.mark.parametrize("change", ["image", "fingerprint", "max_keypoints"])
def test_any_change_of_content_is_extracted_anew(tmp_path: Path, change: str) -> None:
    path = tmp_path / "a.ppm"
    write_ppm(path, photo(0))
    CachedMethod(Counting(), 5, tmp_path / "cache").features_of(path)
    if change == "image":
        write_ppm(path, photo(1))
    method = Counting("counting 2" if change == "fingerprint" else "counting 1")
    fresh = Counting(method.fingerprint)
    max_keypoints = 6 if change == "max_keypoints" else 5
    found = CachedMethod(method, max_keypoints, tmp_path / "cache").features_of(path)
    assert method.calls == 1
    assert same(found, CachedMethod(fresh, max_keypoints, None).features_of(path))


def test_an_entry_that_was_cut_off_is_made_again(tmp_path: Path) -> None:
    write_ppm(tmp_path / "a.ppm", photo(0))
    source = CachedMethod(method := Counting(), 5, tmp_path / "cache")
    found = source.features_of(tmp_path / "a.ppm")
    (entry,) = (tmp_path / "cache").rglob("*.safetensors")
    entry.write_bytes(entry.read_bytes()[:-7])
    assert same(source.features_of(tmp_path / "a.ppm"), found)
    assert method.calls == 2


def test_d2_net_files_beside_or_under_another_root(tmp_path: Path) -> None:
    root = tmp_path / "data"
    write_sequence(root / "v_wall")
    (tmp_path / "exported" / "v_wall").mkdir(parents=True)
    keypoints = np.array([[1.0, 2.0, 1.5], [3.0, 4.0, 1.0]])
    arrays = {"keypoints": keypoints, "scores": np.array([0.1, 0.9]), "descriptors": np.array([[3.0, 4.0], [0.0, 2.0]])}
    with (tmp_path / "exported" / "v_wall" / "1.ppm.d2-net").open("wb") as file:
        np.savez(file, **arrays)
    features = NpzFolder(tmp_path / "exported", root).features_of(root / "v_wall" / "1.ppm")
    assert features.keypoints.tolist() == [[3, 4], [1, 2]]  # best first
    assert torch.allclose(features.descriptors, torch.tensor([[0.0, 1.0], [0.6, 0.8]]))
    assert features.image_size == (WIDTH, HEIGHT)


def test_hloc_files_are_read_by_names_relative_to_the_data(tmp_path: Path) -> None:
    root = tmp_path / "data"
    write_sequence(root / "v_wall")
    descriptors = torch.tensor([[3.0, 4.0], [0.0, 2.0]])
    features = Features(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([0.1, 0.9]), descriptors, (WIDTH, HEIGHT))
    with FeatureStore(tmp_path / "other.h5", "a") as store:
        store.write("v_wall/1.ppm", features)
    source = open_method(str(tmp_path / "other.h5"), MethodSetting(root, 10, ExtractionOptions()))
    found = source.features_of(root / "v_wall" / "1.ppm")
    assert source.name == "other"
    assert found.keypoints.tolist() == [[3, 4], [1, 2]]
    assert torch.allclose(found.descriptors, torch.tensor([[0.0, 1.0], [0.6, 0.8]]))
    with pytest.raises(StoreError, match=r"v_wall/2\.ppm"):
        source.features_of(root / "v_wall" / "2.ppm")


def a_model() -> PoSFeat:
    torch.manual_seed(0)
    return build_model(ModelOptions()).eval()


def test_another_weight_or_option_is_another_fingerprint() -> None:
    model, options = a_model(), ExtractionOptions()
    first = Ours("a", model, options).fingerprint
    assert Ours("b", a_model(), options).fingerprint == first
    assert Ours("a", model, ExtractionOptions(scales=(1.0, 0.5))).fingerprint != first
    with torch.no_grad():
        next(model.parameters()).view(-1)[0] += 1e-3
    assert Ours("a", model, options).fingerprint != first


def test_a_checkpoint_and_its_descriptors_at_sift_keypoints_are_methods(tmp_path: Path) -> None:
    write_ppm(tmp_path / "a.ppm", photo(0, width=128, height=96))
    card = ModelCard(name="fresh")
    save_checkpoint(tmp_path / "fresh.safetensors", a_model(), card)
    setting = MethodSetting(tmp_path, 40, ExtractionOptions(), device="cpu")
    checkpoint = tmp_path / "fresh.safetensors"
    ours = open_method(f"{checkpoint}@20", setting)
    assert ours.name == "fresh@20"
    assert len(ours.features_of(tmp_path / "a.ppm")) <= 20
    described = open_method(f"sift+{checkpoint}", setting).features_of(tmp_path / "a.ppm")
    sift = open_method("rootsift", setting).features_of(tmp_path / "a.ppm")
    assert torch.equal(described.keypoints, sift.keypoints)
    assert described.descriptors.shape == (len(sift), 128)


def test_keypoints_of_one_method_described_by_another_under_a_name_of_ones_own(tmp_path: Path) -> None:
    write_ppm(tmp_path / "a.ppm", photo(0, width=128, height=96))
    save_checkpoint(tmp_path / "one.safetensors", a_model(), ModelCard(name="one", trained=True))
    other = a_model()
    with torch.no_grad():
        other.description.head.weight.mul_(torch.linspace(-1, 1, 128)[:, None, None, None])
    save_checkpoint(tmp_path / "other.safetensors", other, ModelCard(name="other", trained=True))
    setting = MethodSetting(tmp_path, 40, ExtractionOptions(), device="cpu")
    one, two = (open_method(str(tmp_path / f"{name}.safetensors"), setting) for name in ("one", "other"))
    crossed = open_method(f"Model 5={tmp_path / 'one.safetensors'}+{tmp_path / 'other.safetensors'}@30", setting)
    assert crossed.name == "Model 5"
    found = crossed.features_of(tmp_path / "a.ppm")
    keypoints = one.features_of(tmp_path / "a.ppm").keypoints[:30]
    assert torch.equal(found.keypoints, keypoints)
    assert len({source.fingerprint for source in (one, two, crossed)}) == 3
    at_orb = open_method(f"orb+{tmp_path / 'one.safetensors'}", setting)
    assert torch.equal(
        at_orb.features_of(tmp_path / "a.ppm").keypoints,
        open_method("orb", setting).features_of(tmp_path / "a.ppm").keypoints,
    )


def test_weights_or_options_that_changed_under_the_same_name_are_never_read_from_the_cache(tmp_path: Path) -> None:
    write_ppm(tmp_path / "a.ppm", photo(0, width=128, height=96))
    path = tmp_path / "ours.safetensors"
    model = a_model()

    def found(extraction: ExtractionOptions | None = None, cached: bool = True) -> Features:
        cache = tmp_path / "cache" if cached else None
        setting = MethodSetting(tmp_path, 40, extraction or ExtractionOptions(), cache, device="cpu")
        return open_method(str(path), setting).features_of(tmp_path / "a.ppm")

    save_checkpoint(path, model, ModelCard(name="ours", trained=True))
    first = found()
    assert same(found(), first)
    with torch.no_grad():
        model.description.head.weight.mul_(torch.linspace(-1, 1, 128)[:, None, None, None])
    save_checkpoint(path, model, ModelCard(name="ours", trained=True))
    second = found()
    assert not same(second, first)
    assert same(second, found(cached=False))
    smaller = ExtractionOptions(scales=(0.5,))
    assert not same(found(smaller), second)
    assert same(found(smaller), found(smaller, cached=False))
    assert len(list((tmp_path / "cache").rglob("*.safetensors"))) == 3


def test_other_contents_of_exported_files_are_another_fingerprint(tmp_path: Path) -> None:
    (tmp_path / "exported").mkdir()
    for number in (1, 2):
        np.savez(tmp_path / "exported" / f"{number}.ppm.npz", keypoints=np.zeros((1, 2)), descriptors=np.ones((1, 4)))
    before = NpzFolder(tmp_path / "exported", tmp_path).fingerprint
    assert NpzFolder(tmp_path / "exported", tmp_path).fingerprint == before
    np.savez(tmp_path / "exported" / "2.ppm.npz", keypoints=np.ones((1, 2)), descriptors=np.ones((1, 4)))
    assert NpzFolder(tmp_path / "exported", tmp_path).fingerprint != before


def test_a_missing_or_damaged_feature_file_says_which(tmp_path: Path) -> None:
    root = tmp_path / "data"
    write_sequence(root / "v_wall")
    folder = tmp_path / "exported"
    (folder / "v_wall").mkdir(parents=True)
    with pytest.raises(StoreError, match="v_wall"):
        NpzFolder(folder, root).features_of(root / "v_wall" / "1.ppm")
    (folder / "v_wall" / "1.ppm.npz").write_bytes(b"PK nothing")
    with pytest.raises(StoreError, match=r"1\.ppm\.npz"):
        NpzFolder(folder, root).features_of(root / "v_wall" / "1.ppm")
