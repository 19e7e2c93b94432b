"""One .npz file for each image, beside it or under another root: D2-Net's layout, and that of the Aachen challenge.

Both hold ``keypoints`` and ``descriptors`` (N, D) under NAME + an ending. D2-Net's keypoints are x, y, scale with the centre
of the top-left pixel at (0, 0), and it has ``scores``. Those of the local feature challenge on Aachen are x, y as COLMAP
counts, (0.5, 0.5). Neither has matches: the challenge's own script matches the descriptors.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from posfeat.geometry.pixels import COLMAP_OFFSET_PX
from posfeat.interop.folder_files import file_of, has_no_matches, names_below, not_readable, write_whole
from posfeat.types import Features, Matches

D2NET_ENDING = ".d2-net"
AACHEN_ENDING = ".posfeat"


class D2NetFolder:
    """Files as D2-Net's extract_features.py writes them."""

    program, offset_px, holds_matches = "D2-Net", 0.0, False

    def __init__(self, folder: Path, ending: str = D2NET_ENDING) -> None:
        self.folder, self.ending = folder, ending

    def write(self, name: str, features: Features) -> None:
        arrays = self._arrays(features)
        write_whole(file_of(self.folder, name, self.ending), lambda file: np.savez(file, **arrays))

    def names(self) -> list[str]:
        return names_below(self.folder, self.ending)

    def read(self, name: str, image_size: tuple[int, int]) -> Features:
        path = file_of(self.folder, name, self.ending)
        try:
            with np.load(path, allow_pickle=False) as arrays:
                xy = arrays["keypoints"][:, :2].astype(np.float32) - np.float32(self.offset_px)
                descriptors = arrays["descriptors"].astype(np.float32)
                scores = arrays["scores"] if "scores" in arrays else np.ones(len(xy))
        except (OSError, ValueError, KeyError, IndexError, EOFError, zipfile.BadZipFile) as error:
            raise not_readable(path, f"{self.program}'s features", error) from None
        if not len(xy) == len(descriptors) == len(scores):
            mismatch = ValueError("keypoints, scores and descriptors differ in number")
            raise not_readable(path, f"{self.program}'s features", mismatch)
        ranks = torch.from_numpy(scores.astype(np.float32)).reshape(-1)
        return Features(torch.from_numpy(xy), ranks, torch.from_numpy(descriptors), image_size)

    def write_matches(self, name0: str, name1: str, matches: Matches) -> None:
        raise has_no_matches(self.program)

    def pairs(self) -> list[tuple[str, str]]:
        return []

    def read_matches(self, name0: str, name1: str) -> Matches:
        raise has_no_matches(self.program)

    def close(self) -> None:
        """Nothing is open."""

    def _arrays(self, features: Features) -> dict[str, Any]:
        xy = features.keypoints.cpu().numpy().astype(np.float32)
        return {
            "keypoints": np.concatenate([xy, np.ones((len(xy), 1), np.float32)], axis=1),
            "scores": features.scores.cpu().numpy().astype(np.float32),
            "descriptors": features.descriptors.cpu().numpy().astype(np.float32),
        }


class AachenFolder(D2NetFolder):
    """Files as the scripts of the local feature challenge on Aachen read them; the ending is the method's name."""

    program, offset_px = "the Aachen challenge", COLMAP_OFFSET_PX

    def __init__(self, folder: Path, ending: str = AACHEN_ENDING) -> None:
        super().__init__(folder, ending)

    def _arrays(self, features: Features) -> dict[str, Any]:
        xy = features.keypoints.cpu().numpy().astype(np.float32) + np.float32(self.offset_px)
        return {"keypoints": xy, "descriptors": features.descriptors.cpu().numpy().astype(np.float32)}
