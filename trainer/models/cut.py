"""A backbone cut in two where its trained layers begin: what comes before them is the same for an image in every round.

The front is frozen: a site computes its output once for each image and keeps it as a row. The rest takes rows. Tensors keep
the names that they have in the backbone.

Shape legend: B batch, S image size, R numbers in a row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, fx, nn

from fedplcc.shared.errors import InvalidModel


def cut(
    backbone: nn.Module, trained: frozenset[nn.Module], image_size: int, name: str
) -> tuple[nn.Module, nn.Module, int]:
    """Return the front, the rest and R. They hold the backbone's own layers, put into evaluation mode.

    Args:
        backbone: Turns images `[B, 3, S, S]` into features.
        trained: Its trained layers, each for its own tensors alone, see partial.py.
        image_size: S.

    Returns:
        The front turns images into rows `[B, R]`, the rest rows into the backbone's features.

    Raises:
        InvalidModel: Not one tensor of each image goes from the front to the rest, or it has more numbers than two images.
    """
    graph = _traced(backbone.eval(), trained, name)
    image, *others = (node for node in graph.nodes if node.op == "placeholder")
    behind = _behind(graph, dict(backbone.named_modules()), trained)
    given = {before for node in behind for before in node.all_input_nodes} - behind
    constants = {node for node in given if node.op == "get_attr"}
    ends = given - constants - {*others}
    if len(ends) != 1 or image in ends:
        raise _uncut(
            name, f"{len(ends - {image})} tensors go from the layers that stay to those that are trained, not one"
        )
    (end,) = ends
    defaults: dict[fx.Node, Any] = {
        node: node.args[0] if node.args else None for node in others
    }  # what a model takes besides the image

    front, known = fx.Graph(), dict(defaults)
    _copy(front, (node for node in graph.nodes if node not in behind and node not in defaults), known)
    result = front.output(known[end])
    first = fx.GraphModule(backbone, front)
    shape = _shape(first, image_size, name)
    with front.inserting_before(result):
        result.args = (front.call_method("flatten", (known[end], 1)),)
    first.recompile()

    rest, known = fx.Graph(), dict(defaults)
    known[end] = rest.call_method("reshape", (rest.placeholder("rows_BR"), (-1, *shape)))
    _copy(rest, (node for node in graph.nodes if node in behind | constants), known)
    return first, fx.GraphModule(backbone, rest), shape.numel()


class _Outline(fx.Tracer):
    """Looks into layers that hold trained and other tensors, and no others: few lines of a model have to be traceable."""

    def __init__(self, mixed: Collection[nn.Module]) -> None:
        super().__init__()
        self._mixed = mixed

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return m not in self._mixed


def _traced(backbone: nn.Module, trained: frozenset[nn.Module], name: str) -> fx.Graph:
    mixed = {backbone, *(layer for layer in backbone.modules() if len(_kinds(layer, trained)) > 1)}
    try:
        return _Outline(mixed).trace(backbone)
    # A model's own lines run, with stand-ins for tensors.
    except Exception as cause:
        raise _uncut(name, f"{type(cause).__name__}: {(str(cause).splitlines() or [''])[0]}") from cause


def _behind(graph: fx.Graph, layers: Mapping[str, nn.Module], trained: frozenset[nn.Module]) -> set[fx.Node]:
    """Return the nodes whose values change with what is trained."""
    behind = set[fx.Node]()
    for node in graph.nodes:
        is_trained = node.op == "call_module" and True in _kinds(layers[str(node.target)], trained)
        is_trained |= node.op == "get_attr" and layers[str(node.target).rpartition(".")[0]] in trained
        if is_trained or not behind.isdisjoint(node.all_input_nodes):
            behind.add(node)
    return behind


def _kinds(layer: nn.Module, trained: frozenset[nn.Module]) -> set[bool]:
    """Return whether layers within a layer that have tensors are trained: both, one of them, or none where none has any."""
    owners = (
        part
        for part in layer.modules()
        for own in (part.parameters(recurse=False), part.buffers(recurse=False))
        if any(True for _ in own)
    )
    return {part in trained for part in owners}


def _copy(graph: fx.Graph, nodes: Iterable[fx.Node], known: dict[fx.Node, Any]) -> None:
    for node in nodes:
        known[node] = graph.node_copy(node, known.__getitem__)


def _shape(front: nn.Module, image_size: int, name: str) -> torch.Size:
    """Return the shape of what the front makes of one image, tried on two blank ones."""
    with torch.no_grad():
        made = front(torch.zeros(2, 3, image_size, image_size))
    if not isinstance(made, Tensor) or made.dtype != torch.float32 or made.ndim < 2 or len(made) != 2:
        raise _uncut(name, "the layers that stay make no float32 tensor of each image")
    shape, of_image = made.shape[1:], 3 * image_size * image_size
    if shape.numel() > 2 * of_image:
        raise _uncut(name, f"its output there has {shape.numel()} numbers an image, and an image has {of_image}")
    return shape


def _uncut(name: str, why: str) -> InvalidModel:
    return InvalidModel(
        f"model {name!r} cannot be cut where its trained layers begin ({why}); choose another N of training.train, "
        '"head", "norm" or "all"'
    )
