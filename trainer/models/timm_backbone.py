"""`timm:NAME`: any image model of the timm package as the backbone under a head of two layers.

FedCCL (https://arxiv.org/abs/2404.09259) puts an MLP 192 -> 128 -> M on a pre-trained vision transformer of width 192. Here
the head is a linear layer to `hidden_dim` rectified features and the classifier; with `hidden_dim = 0` the features are the
backbone's own, which may be negative.

Every client has the trained weights that a run begins with in the store of its site, and makes the same first model. Of the
backbone that travels which is trained (`training.train`): all of it, a part, or nothing. Where its first layers are not, the
model takes what these make of images in place of the images, too.

Shape legend: B batch, S image size, R numbers in a row of frozen layers, W width of the backbone, D features, M classes.
"""

from __future__ import annotations

import copy
import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedplcc.shared.config.tables.model import TimmOptions
from fedplcc.shared.errors import InvalidModel
from fedplcc.trainer.models.cut import cut
from fedplcc.trainer.models.frozen import FrozenBackbone
from fedplcc.trainer.models.low_rank import add_low_rank
from fedplcc.trainer.models.partial import BATCH_NORMS, hold_still, names_of, trained_layers
from fedplcc.trainer.models.state import check_state

EXTRA = "pip install 'fedplcc[timm]'"


class TimmModel(nn.Module):
    """A backbone, a hidden layer, a linear classifier."""

    head_prefixes = ("classifier.",)

    def __init__(
        self,
        backbone: nn.Module,
        width: int,
        num_classes: int,
        options: TimmOptions,
        trained: frozenset[nn.Module] | None = None,
        frozen: FrozenBackbone | None = None,
    ) -> None:
        """Put a head on a backbone.

        Args:
            backbone: The backbone, or what of it comes after frozen layers: it takes their rows.
            width: W.
            num_classes: M.
            options: The run's `[model.options]`.
            trained: Layers of the backbone that are trained, see partial.py; all if None.
            frozen: Frozen layers before it; no part of the model's state.
        """
        super().__init__()
        self.frozen, self.backbone = frozen, backbone
        self.feature_dim = options.hidden_dim or width
        self.hidden = (
            nn.Sequential(nn.Linear(width, options.hidden_dim), nn.ReLU()) if options.hidden_dim else nn.Identity()
        )
        self.classifier = nn.Linear(self.feature_dim, num_classes)
        self._feature_norm = options.feature_norm
        self.still_layers: tuple[nn.Module, ...] = ()
        self.still_names: frozenset[str] = frozenset()
        if trained is not None:
            still = [layer for layer in backbone.modules() if layer not in trained]
            self.still_names = names_of(self, still)
            for layer in still:
                for param in layer.parameters(recurse=False):
                    param.requires_grad_(False)
            # Above frozen layers statistics stay as well: each round's would be of the last client's domain in its steps.
            kept = [] if frozen is None else [layer for layer in trained if isinstance(layer, BATCH_NORMS)]
            self.still_layers = (*still, *kept)

    def train(self, mode: bool = True) -> Self:
        """Set the mode; what is not trained stays in evaluation mode, so that its running statistics do not move either."""
        super().train(mode)
        hold_still(self)
        return self

    def features(self, x_B: Tensor) -> Tensor:
        """Return feature vectors `[B, D]` of images `[B, 3, S, S]`, or of the frozen layers' rows `[B, R]`."""
        if self.frozen is not None and x_B.ndim > 2:
            x_B = self.frozen(x_B)
        z_BD: Tensor = self.hidden(self._normalised(self.backbone(x_B)))
        return z_BD

    def _normalised(self, raw_BW: Tensor) -> Tensor:
        if self._feature_norm == "none":
            return raw_BW
        if self._feature_norm == "sqrt_l2":
            raw_BW = raw_BW.sign() * raw_BW.abs().sqrt()
        return functional.normalize(raw_BW, dim=1)

    def forward(self, x_BCSS: Tensor) -> Tensor:
        """Return logits `[B, M]`."""
        logits_BM: Tensor = self.classifier(self.features(x_BCSS))
        return logits_BM


@dataclass(frozen=True, slots=True)
class Halves:
    """A backbone whose first layers are frozen.

    Attributes:
        rest: What takes their rows; nothing is changed in it.
        width: W.
    """

    frozen: FrozenBackbone
    rest: nn.Module
    trained: frozenset[nn.Module]
    width: int

    def model(self, num_classes: int, options: TimmOptions) -> TimmModel:
        """Return a model with a rest of its own and the shared frozen layers."""
        rest, trained = copy.deepcopy((self.rest, self.trained))
        return TimmModel(rest, self.width, num_classes, options, trained, self.frozen)


def timm_halves(name: str, image_size: int, weights: Mapping[str, Tensor] | None, train: str, key: str) -> Halves:
    """Return timm's model of that name, cut before what is trained.

    Args:
        image_size: S.
        train: "head", by which all of the backbone is frozen, or "last:N".
        key: Names the architecture and its weights.

    Raises:
        InvalidModel: See `timm_backbone`, `trained_layers` and `cut`.
    """
    backbone, width = timm_backbone(name, image_size, weights)
    if train == "head":
        return Halves(FrozenBackbone(backbone, width, key), nn.Identity(), frozenset(), width)
    trained = trained_layers(backbone, train, f"timm:{name}")
    front, rest, row = cut(backbone, trained, image_size, f"timm:{name}")
    return Halves(FrozenBackbone(front, row, key), rest, trained, width)


def timm_model(
    name: str,
    num_classes: int,
    image_size: int,
    options: TimmOptions,
    weights: Mapping[str, Tensor] | None = None,
    *,
    train: str = "all",
) -> TimmModel:
    """Return timm's model of that name under a new head.

    Args:
        name: Name in timm, with or without the tag of its weights.
        num_classes: M.
        image_size: S.
        options: The run's `[model.options]`.
        weights: The backbone's tensors under timm's names, which timm fits to the images' size; None where it is drawn.
        train: "all", "norm" or "lora".

    Raises:
        InvalidModel: timm is not installed or has no such model, the weights are of another, or the images do not fit.
    """
    backbone, width = timm_backbone(name, image_size, weights)
    trained = None
    if train == "lora":
        trained = add_low_rank(backbone, f"timm:{name}")
    elif train != "all":
        trained = trained_layers(backbone, train, f"timm:{name}")
    model = TimmModel(backbone, width, num_classes, options, trained)
    try:
        check_state(model)
    except InvalidModel as error:  # its second half advises to change the code, which is timm's here
        problem = error.detail.partition(";")[0]
        raise InvalidModel(f"model 'timm:{name}' cannot travel: {problem}; choose another of timm's") from error
    return model


def timm_backbone(name: str, image_size: int, weights: Mapping[str, Tensor] | None) -> tuple[nn.Module, int]:
    """Return timm's model of that name without its classifier, and its width; see `timm_model`."""
    arguments: dict[str, Any] = {"num_classes": 0}
    known = _timm(name).get_pretrained_cfg(name)
    if known is not None and known.fixed_input_size:  # transformers and mixers; convolutions take any size
        arguments["img_size"] = image_size
    if weights is not None:
        arguments |= {"pretrained": True, "pretrained_cfg_overlay": {"state_dict": dict(weights)}}
    backbone = made_by_timm(name, **arguments)
    if weights is not None:
        _check_loaded(backbone, weights, name)
    return backbone, _width(backbone, name, image_size)


def made_by_timm(name: str, **arguments: Any) -> nn.Module:
    """Return timm's own model of that name.

    Args:
        arguments: Those of `timm.create_model`. Nothing is downloaded unless they say `pretrained` without a state.

    Raises:
        InvalidModel: timm is not installed, has no such model, or cannot make it.
    """
    try:
        model: nn.Module = _timm(name).create_model(name, **arguments)
    except InvalidModel:
        raise
    # timm passes on any error of its models and its hub.
    except Exception as cause:
        size = f" for images of {arguments['img_size']} pixels" if "img_size" in arguments else ""
        what = f"{type(cause).__name__}: {_first_line(cause)}"
        raise InvalidModel(f"model 'timm:{name}' cannot be made{size} ({what})") from cause
    return model


def _timm(name: str) -> Any:
    """Return the package timm, which has the model of this name."""
    try:
        import timm
    except ModuleNotFoundError as error:
        raise InvalidModel(f"model 'timm:{name}' needs {error.name}, which is not installed: {EXTRA}") from error
    _check_name(timm, name)
    return timm


def _check_name(timm: Any, name: str) -> None:
    """Refuse a name or a tag that timm does not have; the error names the nearest ones."""
    architecture, _, tag = name.partition(".")
    if not timm.is_model(architecture):
        nearest = difflib.get_close_matches(architecture, timm.list_models(), n=3)
        hint = f"did you mean {' or '.join(map(repr, nearest))}?" if nearest else "timm.list_models() lists them"
        raise InvalidModel(f"timm {timm.__version__} has no model {architecture!r}; {hint}")
    names = timm.list_models(f"{architecture}.*", pretrained=True, include_tags=True) if tag else [name]
    if name not in names:
        known = f"known: {', '.join(names)}" if names else "it has none"
        raise InvalidModel(f"timm {timm.__version__} has no weights {tag!r} of {architecture!r}; {known}")


def _check_loaded(backbone: nn.Module, weights: Mapping[str, Tensor], name: str) -> None:
    """Refuse weights of another model: under a new head timm accepts any names silently.

    Only a tensor whose size follows the images' may differ in its values, as timm fits it.
    """
    state = backbone.state_dict()
    for tensor in sorted(state.keys() | weights.keys()):
        made, given = state.get(tensor), weights.get(tensor)
        fits = made is not None and given is not None and (made.shape != given.shape or torch.equal(made, given))
        if not fits:
            raise InvalidModel(f"the weights are of another model than 'timm:{name}': they differ in {tensor}")


def _width(backbone: nn.Module, name: str, image_size: int) -> int:
    """Return W, tried on two blank images: the attributes of timm's models are not always right."""
    backbone.eval()
    try:
        with torch.no_grad():
            z_BW = backbone(torch.zeros(2, 3, image_size, image_size))
    except Exception as cause:
        raise InvalidModel(
            f"model 'timm:{name}' does not take images of {image_size} x {image_size} pixels ({_first_line(cause)}); "
            "set another data.image_size"
        ) from cause
    finally:
        backbone.train()
    if not isinstance(z_BW, Tensor) or z_BW.ndim != 2:
        raise InvalidModel(f"model 'timm:{name}' gives no vector for an image; choose a classification model of timm")
    return z_BW.shape[1]


def _first_line(cause: Exception) -> str:
    return (str(cause).splitlines() or [type(cause).__name__])[0].strip().rstrip(".")
