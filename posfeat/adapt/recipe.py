"""How weights are tuned: a low rate, the person's posed pairs mixed with rendered views, short and gentle.

The posed pairs bring the real change of view, light and lens. Rendered views of the same photos have exact cameras, and give
exact points where both are taken from one place; rendered views of generic pictures keep what the weights could do before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from posfeat.data.augment import PhotometricOptions
from posfeat.data.geometric import GeometricOptions
from posfeat.data.random_views import ViewOptions
from posfeat.data.synthetic import SyntheticOptions
from posfeat.losses.expected_reward import ExpectedRewardOptions
from posfeat.losses.line_to_window import SearchOptions
from posfeat.options import check_options, described
from posfeat.processor import multiplies_bfloat16
from posfeat.training.description_stage import DescriptionOptions
from posfeat.training.detection_stage import DetectionOptions
from posfeat.training.loop import LoopOptions
from posfeat.types import OptionsError

StageName = Literal["description", "detection"]


@dataclass(frozen=True)
class RecipeOptions:
    """How weights are tuned."""

    description_rate: float = described(3e-4, "learning rate of the description", low=0)
    detection_rate: float = described(5e-4, "learning rate of the detector", low=0)
    detection_time: float = described(0.25, "share of the time that the detector gets", low=0, high=0.9)
    posed_share: float = described(0.5, "share of posed pairs; the others are rendered", low=0, high=1)
    most_forgotten: float = described(
        0.01, "share of the MMAscore on rendered generic photos that may be lost", low=0, high=1
    )
    look: float = described(0.6, "strength of the change of look of all training images", low=0)
    batch_size: int = described(8, "pairs a step", low=1)
    height: int = described(240, "height of training images; their width where most photos are upright", low=32)
    width: int = described(320, "width of training images", low=32)
    steps: int = described(1_000_000, "most steps of each stage; the time ends it otherwise", low=1)
    validate_every: int = described(50, "steps between validations", low=1)
    patience: int = described(6, "a stage ends after so many validations without a better one", low=1)
    validation_pairs: int = described(32, "posed, and as many rendered, pairs of a validation while tuning", low=8)

    def __post_init__(self) -> None:
        check_options(self)
        if self.height % 16 or self.width % 16:
            raise OptionsError(f"tune.height={self.height} and tune.width={self.width} must be multiples of 16")


def description_losses() -> DescriptionOptions:
    """The losses that the default weights were trained with."""
    return DescriptionOptions(query_cell_px=8, contrast_weight=1.0, search=SearchOptions(noise="symmetric"))


def detection_losses() -> DetectionOptions:
    """The paper's policy gradient, and the exact expectation on rendered pairs from one place."""
    return DetectionOptions(expected=ExpectedRewardOptions(weight=1.0))


def rendering(no_baseline_share: float) -> SyntheticOptions:
    """Rendered views as the default weights saw them."""
    return SyntheticOptions(views=ViewOptions(no_baseline_share=no_baseline_share))


def look(recipe: RecipeOptions) -> PhotometricOptions:
    """How training images change in look."""
    return PhotometricOptions(strength=recipe.look)


def geometry() -> GeometricOptions:
    """How posed photos are turned and cropped: upright ones stay mostly so."""
    return GeometricOptions(any_turn_share=0.1, small_turn_deg=5.0)


def loop_options(recipe: RecipeOptions, stage: StageName, minutes: float, device: torch.device) -> LoopOptions:
    """Length, rate and averaging of a stage; ``minutes`` are this stage's own."""
    rate = recipe.description_rate if stage == "description" else recipe.detection_rate
    return LoopOptions(
        steps=recipe.steps,
        minutes=minutes,
        batch_size=recipe.batch_size,
        optimiser="adamw",
        learning_rate=rate,
        weight_decay=0.01,
        schedule="cosine",
        warmup=20,
        clip=10.0,
        average=0.98,
        log_every=5,
        validate_every=recipe.validate_every,
        patience=recipe.patience,
        save_every=25,
        precision=_precision(device),
    )


def _precision(device: torch.device) -> Literal["bf16", "fp32"]:
    """16-bit arithmetic where the hardware has it."""
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported() else "fp32"
    return "bf16" if device.type == "cpu" and multiplies_bfloat16() else "fp32"
