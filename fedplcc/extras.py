"""Installable extras, and the modules that each of them brings."""

from __future__ import annotations

EXTRAS = {
    "aggregator": ("alembic", "sqlalchemy"),
    "gateway": ("fastapi", "uvicorn"),
    "trainer": ("torch", "torchvision", "PIL"),
    "timm": ("timm",),
    "export": ("onnx", "onnxscript"),
    "ray": ("ray",),
}
"""Which extra installs which module; the rest comes with `demo`."""
