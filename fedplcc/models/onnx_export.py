"""A run's model as an ONNX file: images in, logits and features out, any batch size.

The file holds what else its user needs as metadata, each a text: `classes`, `mean`, `std` and `image_size` as JSON, and
which run and round it is of. Images are normalised by the caller: pixels in [0, 1], minus mean, over std.

Shape legend: N batch, S image size, D feature size, M classes.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from fedplcc.models.trained_model import TrainedModel
from fedplcc.shared.errors import InvalidModel
from fedplcc.shared.version import VERSION
from fedplcc.trainer.models import FeatureModel

if TYPE_CHECKING:
    from onnx import ModelProto

EXTRA, EXTRA_CHECK = "pip install 'fedplcc[export]'", "pip install onnxruntime"
INPUT, OUTPUTS = "images", ("logits", "features")
TRIED_BATCHES = (1, 3)
"""Batch sizes on which the file is compared with the model; the graph was traced with another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Largest differences of ONNX Runtime's outputs from torch's, on random images.

    Attributes:
        logits: Largest absolute difference.
        scale: Largest absolute value of torch's outputs.
    """

    logits: float
    features: float
    scale: float

    @property
    def agrees(self) -> bool:
        """Whether the differences are as small as another order of summation makes them."""
        return max(self.logits, self.features) <= 1e-3 * self.scale + 1e-6


class _Outputs(nn.Module):
    """The model with both outputs."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits `[N, M]` and features `[N, D]`."""
        extractor = cast(FeatureModel, self.model)
        features_ND = extractor.features(images)
        return extractor.classifier(features_ND), features_ND


def export_onnx(trained: TrainedModel) -> tuple[bytes, Comparison | None]:
    """Return the model as the bytes of an ONNX file, compared with torch.

    Returns:
        The file, and how ONNX Runtime's results compare with torch's; None where it is not installed.

    Raises:
        InvalidModel: A package is missing, torch cannot export the model, or the file gives other results.
    """
    data = _graph(trained).SerializeToString()
    comparison = _compared(trained, data)
    if comparison is not None and not comparison.agrees:
        raise InvalidModel(
            f"the exported model differs from torch's by {max(comparison.logits, comparison.features):.2g}; it is not "
            "written, as its answers could not be trusted"
        )
    return data, comparison


def _graph(trained: TrainedModel) -> ModelProto:
    try:
        import onnx
        import onnxscript  # noqa: F401  torch.onnx needs it, and would say so less plainly
    except ModuleNotFoundError as error:
        raise InvalidModel(f"exporting needs {error.name}, which is not installed: {EXTRA}") from error
    size = trained.config.data.image_size
    x_NCSS = torch.zeros(2, 3, size, size, device=trained.device)
    try:
        with _quietly():
            program = torch.onnx.export(
                _Outputs(trained.model).eval(),
                (x_NCSS,),
                input_names=[INPUT],
                output_names=list(OUTPUTS),
                dynamic_shapes={"images": {0: torch.export.Dim("batch")}},
                dynamo=True,
                external_data=False,
                verbose=False,
            )
    # The exporter may raise any exception, and the model may be code of the user.
    except Exception as cause:
        first = (str(cause).strip().splitlines() or [type(cause).__name__])[0]
        raise InvalidModel(f"torch cannot export model {trained.config.model.name!r} to ONNX: {first}") from cause
    assert program is not None
    graph = program.model_proto
    graph.producer_name, graph.producer_version = "fedplcc", VERSION
    graph.doc_string = f"{trained.title}; images [N, 3, {size}, {size}]: pixels in [0, 1], minus mean, over std"
    onnx.helper.set_model_props(graph, metadata(trained))
    onnx.checker.check_model(graph)
    return graph


def metadata(trained: TrainedModel) -> dict[str, str]:
    """The file's metadata."""
    data = trained.config.data
    values: dict[str, Any] = {
        "classes": data.classes,
        "mean": data.mean,
        "std": data.std,
        "image_size": data.image_size,
    }
    facts = {name: str(value) for name, value in trained.facts.items() if value is not None}
    return {name: json.dumps(value) for name, value in values.items()} | facts | {"method": trained.config.run.method}


def _compared(trained: TrainedModel, data: bytes) -> Comparison | None:
    try:
        import onnxruntime
    except ModuleNotFoundError:
        return None
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    size = trained.config.data.image_size
    rng = np.random.default_rng(0)
    differences, scale = np.zeros(2), 0.0
    for batch_size in TRIED_BATCHES:
        images = rng.standard_normal((batch_size, 3, size, size)).astype(np.float32)
        with torch.inference_mode():
            expected = _Outputs(trained.model).eval()(torch.from_numpy(images).to(trained.device))
        found = session.run(list(OUTPUTS), {INPUT: images})
        arrays = [value.float().cpu().numpy() for value in expected]
        pairs = zip(arrays, found, strict=True)
        differences = np.maximum(differences, [np.abs(one - other).max() for one, other in pairs])
        scale = max(scale, *(float(np.abs(array).max()) for array in arrays))
    return Comparison(logits=float(differences[0]), features=float(differences[1]), scale=scale)


@contextmanager
def _quietly() -> Iterator[None]:
    """Keep the exporter's own output off the terminal within the block."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)
