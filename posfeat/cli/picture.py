"""posfeat picture: the paper's pictures of one's own photos, in a form that can be published."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from posfeat.cli.model_choice import WeightsOption

if TYPE_CHECKING:
    from posfeat.data.images import RGB

EXAMPLES = """\b
Examples:
  posfeat picture scores a.jpg b.jpg -o scores.jpg
  posfeat picture descriptors a.jpg b.jpg -o descriptors.png
  posfeat picture matches graf/img1.ppm graf/img4.ppm --homography graf/H1to4p -o matches.pdf
  posfeat picture matches 0001.jpg 0004.jpg --scene fountain --method rootsift
  posfeat picture landmarks model/sparse/0 features.h5 photos/ -o landmarks.jpg
  posfeat picture model model/sparse/0 -o model.png
"""

app = typer.Typer(
    help="The paper's pictures: score maps, descriptors as colours, matches by their error, landmarks, sparse models.",
    no_args_is_help=True,
)
OutputOption = Annotated[Path, typer.Option("-o", "--output", help="The picture: .jpg, .png, .svg or .pdf.")]
LongestOption = Annotated[int, typer.Option("--longest", min=32, help="Photos are shrunk to this longer side first.")]
_KINDS = ("jpg", "png", "svg", "pdf")


@app.command("scores")
def scores(
    photos: Annotated[list[Path], typer.Argument(help="Photos.")],
    output: OutputOption = Path("scores.jpg"),
    weights: WeightsOption = "default",
    keypoints: Annotated[int, typer.Option("--max-keypoints", min=1, help="The most keypoints for one photo.")] = 1000,
    longest: LongestOption = 1024,
) -> None:
    """The detector's score map of each photo, beside the photo with its keypoints."""
    from posfeat.benchmarks.pictures import panels, with_keypoints
    from posfeat.page.methods import Methods
    from posfeat.page.overlays import score_overlay

    kind, methods = _kind(output), Methods([weights])
    name = methods.check("")
    rows = []
    for rgb in _read(photos, longest):
        found = methods.extract(name, rgb, keypoints)
        rows.append([rgb, score_overlay(methods.maps(name, rgb)), with_keypoints(rgb, found.keypoints.numpy())])
    _write(output, panels(rows, ["photo", "scores", f"the best {keypoints} keypoints"], kind))


@app.command("descriptors")
def descriptors(
    photos: Annotated[list[Path], typer.Argument(help="One photo, or two that share their colours.")],
    output: OutputOption = Path("descriptors.jpg"),
    weights: WeightsOption = "default",
    longest: LongestOption = 1024,
) -> None:
    """The three principal directions of the descriptors as red, green and blue (supplement, Fig. S2)."""
    from posfeat.benchmarks.pictures import panels
    from posfeat.page.methods import Methods
    from posfeat.page.overlays import descriptor_overlay
    from posfeat.types import OptionsError

    if len(photos) > 2:
        raise OptionsError("give one photo or two: colours are shared by the photos of a pair")
    kind, methods = _kind(output), Methods([weights])
    images = _read(photos, longest)
    maps = [methods.maps(methods.check(""), rgb) for rgb in images]
    overlays = [descriptor_overlay(maps[0], *maps[1:]), *(descriptor_overlay(other, maps[0]) for other in maps[1:])]
    _write(output, panels([list(row) for row in zip(images, overlays, strict=True)], ["photo", "descriptors"], kind))


@app.command("matches")
def matches(
    photo0: Annotated[Path, typer.Argument(help="The first photo; with --scene its name in the scene.")],
    photo1: Annotated[Path, typer.Argument(help="The second photo.")],
    homography: Annotated[
        Path | None, typer.Option(help="A file with the 3x3 matrix that takes the first photo to the second.")
    ] = None,
    scene: Annotated[Path | None, typer.Option(help="A folder of posed photos that holds both.")] = None,
    method: Annotated[str, typer.Option(help="Whose features: default, a checkpoint, rootsift, disk ...")] = "default",
    keypoints: Annotated[int, typer.Option("--max-keypoints", min=1, help="The most keypoints for one photo.")] = 2048,
    output: OutputOption = Path("matches.jpg"),
) -> None:
    """Matches coloured by their error (Fig. 6): green to 3 px, yellow to 10 px, red beyond; the truth must be known."""
    from posfeat.benchmarks.judged_pair import errors_by_homography, errors_by_poses, posed_pair
    from posfeat.benchmarks.methods import MethodSetting, open_method
    from posfeat.benchmarks.pictures import matches_by_error
    from posfeat.data.images import read_image
    from posfeat.matching import match
    from posfeat.networks.extraction import ExtractionOptions
    from posfeat.types import OptionsError

    if (homography is None) == (scene is None):
        raise OptionsError("errors need the truth: give either --homography FILE or --scene FOLDER")
    kind = _kind(output)
    pair = None if scene is None else posed_pair(scene, str(photo0), str(photo1))
    paths = (photo0, photo1) if pair is None else (pair.view0.image_path, pair.view1.image_path)
    source = open_method(method, MethodSetting(paths[0].parent, keypoints, ExtractionOptions()))
    features0, features1 = (source.features_of(path) for path in paths)
    indices = match(features0, features1).indices
    xy0, xy1 = features0.keypoints[indices[:, 0]], features1.keypoints[indices[:, 1]]
    if pair is not None:
        errors = errors_by_poses(pair, xy0, xy1)
    elif homography is not None:
        errors = errors_by_homography(homography, xy0, xy1)
    image0, image1 = (read_image(path) for path in paths)
    _write(output, matches_by_error(image0, image1, xy0, xy1, errors, kind))
    print(f"{int((errors <= 3).sum())} of {len(errors)} matches within 3 px")


@app.command("landmarks")
def landmarks(
    model: Annotated[Path, typer.Argument(help="A COLMAP model.")],
    features: Annotated[Path, typer.Argument(help="The feature file that it was made of.")],
    photos: Annotated[Path, typer.Argument(help="Folder of the photos.")],
    name: Annotated[str | None, typer.Option(help="A photo; default the one that sees most of the model.")] = None,
    output: OutputOption = Path("landmarks.jpg"),
) -> None:
    """A photo's keypoints, blue where they became part of a 3D point and red where they did not (Fig. 1)."""
    from posfeat.benchmarks.model_pictures import landmarks_of_model

    data, name, succeeded, total = landmarks_of_model(model, features, photos, name, _kind(output))
    _write(output, data)
    print(f"{succeeded} of {total} keypoints of {name} became landmarks")


@app.command("model")
def model(
    folder: Annotated[Path, typer.Argument(help="A COLMAP model.")],
    output: OutputOption = Path("model.png"),
) -> None:
    """A sparse model's points and cameras, as the cameras look and from above."""
    from posfeat.benchmarks.model_pictures import picture_of_model

    _write(output, picture_of_model(folder, _kind(output)))


def _read(photos: list[Path], longest: int) -> list[RGB]:
    from posfeat.data.images import read_image, resize_longest

    return [resize_longest(read_image(photo), longest) for photo in photos]


def _kind(output: Path) -> str:
    from posfeat.types import OptionsError

    kind = output.suffix.lower().removeprefix(".").replace("jpeg", "jpg")
    if kind not in _KINDS:
        raise OptionsError(f"{output.name}: a picture ends in {', '.join(f'.{known}' for known in _KINDS)}")
    return kind


def _write(output: Path, data: bytes) -> None:
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_bytes(data)
    print(f"picture: {output}")
