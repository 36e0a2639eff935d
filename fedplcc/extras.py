"""Extras of the package and the modules that each installs."""

from __future__ import annotations

EXTRAS = {
    "aggregator": ("alembic", "sqlalchemy"),
    "gateway": ("fastapi", "uvicorn"),
    "trainer": ("torch", "torchvision", "PIL"),
    "timm": ("timm",),
    "export": ("onnx", "onnxscript"),
    "ray": ("ray",),
    "pandas": ("pandas",),
    "tensorboard": ("tensorboard",),
    "mlflow": ("mlflow",),
    "wandb": ("wandb",),
    "sweep": ("optuna",),
}
"""Modules of each extra; `demo` installs all others."""
