"""`python -m gateway`: settings from the environment and flags, then serve."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from gateway import app
from shared.config import GatewaySettings, load
from shared.errors import InvalidConfig


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the flags and serve; returns the exit code (see app.py)."""
    parser = argparse.ArgumentParser(prog="python -m gateway", description="Serve an aggregator's runs over REST.")
    parser.add_argument("--config", type=Path, help="TOML file with a table [gateway]")
    for name, field in GatewaySettings.model_fields.items():
        flag = "--" + name.replace("_", "-")
        if field.annotation is bool:
            parser.add_argument(flag, action="store_const", const=True, help=field.description)
        else:
            parser.add_argument(flag, help=f"default: {field.default}")
    flags = vars(parser.parse_args(arguments))
    file = flags.pop("config")
    try:
        settings = load(GatewaySettings, flags, file)
    except InvalidConfig as error:
        print(f"python -m gateway: {error.detail}", file=sys.stderr)
        return app.EXIT_CONFIG
    return app.run(settings)


if __name__ == "__main__":
    sys.exit(main())
