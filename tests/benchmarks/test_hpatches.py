from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from posfeat.benchmarks.baselines import peer
from posfeat.benchmarks.homography_scores import score_sequences, summarise
from posfeat.benchmarks.hpatches import hpatches_names, read_sequences
from posfeat.benchmarks.layouts import check_layout
from posfeat.data.images import read_image
from posfeat.matching import match
from posfeat.types import DataError
from tests.benchmarks.miniature_sequences import HOMOGRAPHIES, KnownFeatures, write_sequence


def test_the_list_has_108_sequences_52_of_illumination() -> None:
    evaluated, excluded = hpatches_names()
    assert len(evaluated) == 108
    assert sum(name.startswith("i_") for name in evaluated) == 52
    large = "i_contruction i_crownnight i_dc i_pencils i_whitebuilding v_artisans v_astronautis v_talent"
    assert sorted(excluded) == large.split(" ")


def test_release_layout_is_read_and_large_sequences_left_out(tmp_path: Path) -> None:
    for name in ("i_dome", "v_wall", "v_talent"):
        write_sequence(tmp_path / name)
    sequences = read_sequences(tmp_path)
    assert [(s.name, s.change) for s in sequences] == [("i_dome", "illumination"), ("v_wall", "viewpoint")]
    assert [path.name for path in sequences[0].images] == [f"{k}.ppm" for k in range(1, 7)]
    assert all((read == made).all() for read, made in zip(sequences[0].homographies, HOMOGRAPHIES, strict=True))


def test_oxford_layout_is_read(tmp_path: Path) -> None:
    write_sequence(tmp_path / "graf", oxford=True)
    write_sequence(tmp_path / "bikes", oxford=True)
    assert [(s.name, s.change) for s in read_sequences(tmp_path)] == [("bikes", "blur"), ("graf", "viewpoint")]


@pytest.mark.parametrize("oxford", [False, True])
def test_perfect_features_have_mma_one_and_shifted_ones_give_the_shift_back(tmp_path: Path, oxford: bool) -> None:
    for name in ("i_dome", "v_wall"):
        write_sequence(tmp_path / name, oxford=oxford)
    sequences = read_sequences(tmp_path)

    perfect = summarise(score_sequences(sequences, KnownFeatures().features_of, match))
    assert [(s.split, s.pairs) for s in perfect] == [("overall", 10), ("illumination", 5), ("viewpoint", 5)]
    for split in perfect:
        assert split.mma == (1.0,) * 10
        assert split.mma_score == pytest.approx(1)
        assert (split.keypoints, split.matches, split.correct) == (40, 40, 40)

    shifted = summarise(score_sequences(sequences, KnownFeatures(shift_px=(1.5, -2.0)).features_of, match))[0]
    assert shifted.mma == (0.0,) * 2 + (1.0,) * 8
    assert shifted.mma_score == pytest.approx(sum(2 - 0.1 * t for t in range(3, 11)) / 14.5)


def test_a_pair_of_real_features_by_hand_to_the_last_digit(tmp_path: Path) -> None:
    """Loops over lists of numbers, from descriptors to MMA: nothing is shared with what is tested."""
    write_sequence(tmp_path / "v_wall")
    sequence = read_sequences(tmp_path)[0]
    rootsift = peer("rootsift")
    found = {path: rootsift.extract(read_image(path), 60) for path in sequence.images}
    found = {path: replace(one, keypoints=one.keypoints + 2 * torch.randn(len(one), 2)) for path, one in found.items()}
    scored = score_sequences([sequence], found.__getitem__, match)[1]

    first, second = found[sequence.reference], found[sequence.targets[1]]
    similar = [
        [sum(a * b for a, b in zip(one, two, strict=True)) for two in second.descriptors.tolist()]
        for one in first.descriptors.tolist()
    ]
    h = (tmp_path / "v_wall" / "H_1_3").read_text().split()
    a, b, c, d, e, f, g, i, j = map(float, h)
    errors = []
    for row, cosines in enumerate(similar):
        column = max(range(len(cosines)), key=cosines.__getitem__)
        if max(range(len(similar)), key=lambda other: similar[other][column]) == row:
            x, y = first.keypoints[row].tolist()
            u, v = second.keypoints[column].tolist()
            w = g * x + i * y + j
            errors.append(math.hypot((a * x + b * y + c) / w - u, (d * x + e * y + f) / w - v))
    assert 5 < len(errors) < 60
    assert scored.matches == len(errors)
    assert scored.accuracy == tuple(sum(error <= t for error in errors) / len(errors) for t in range(1, 11))
    assert 0 < scored.accuracy[0] < 1


def test_each_image_is_asked_for_once(tmp_path: Path) -> None:
    write_sequence(tmp_path / "v_wall")
    asked: list[str] = []
    known = KnownFeatures()
    score_sequences(read_sequences(tmp_path), lambda path: (asked.append(path.name), known.features_of(path))[1], match)
    assert asked == [f"{k}.ppm" for k in range(1, 7)]


def test_absent_data_says_how_to_get_it(tmp_path: Path) -> None:
    for root in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(DataError, match="hpatches-sequences-release"):
            read_sequences(root)
        assert "hpatches-sequences-release" in " ".join(check_layout(root)[1])


def test_check_counts_and_names_what_is_missing(tmp_path: Path) -> None:
    write_sequence(tmp_path / "i_dome")
    write_sequence(tmp_path / "v_wall")
    write_sequence(tmp_path / "v_talent")
    (tmp_path / "v_wall" / "3.ppm").unlink()
    (tmp_path / "i_dome" / "H_1_4").write_text("1 0 0 0 1 0 0 0")
    found, problems = check_layout(tmp_path)
    assert "v_talent" in " ".join(found)
    assert any("v_wall: image 3 is missing" in problem for problem in problems)
    assert any("i_dome/H_1_4" in problem for problem in problems)

    write_sequence(tmp_path / "v_bees")
    assert any("107 of HPatches' 108 sequences are missing" in problem for problem in check_layout(tmp_path)[1])


def test_a_damaged_sequence_is_an_error_not_left_out(tmp_path: Path) -> None:
    write_sequence(tmp_path / "v_wall")
    (tmp_path / "v_wall" / "3.ppm").unlink()
    with pytest.raises(DataError, match="v_wall: image 3 is missing"):
        read_sequences(tmp_path)
