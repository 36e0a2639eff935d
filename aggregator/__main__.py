"""`python -m aggregator`: settings from the environment and flags, then serve."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from aggregator import app
from shared.config import AggregatorSettings, load
from shared.errors import InvalidConfig


def main() -> int:
    """Parse the flags and serve; returns the exit code (see app.py)."""
    parser = argparse.ArgumentParser(prog="python -m aggregator", description="Aggregate a federation's rounds.")
    parser.add_argument("--config", type=Path, help="TOML file with a table [aggregator]")
    for name, field in AggregatorSettings.model_fields.items():
        flag = "--" + name.replace("_", "-")
        if field.annotation is bool:
            parser.add_argument(flag, action="store_const", const=True)
        else:
            parser.add_argument(flag, help=f"default: {field.default}")
    flags = vars(parser.parse_args())
    file = flags.pop("config")
    try:
        settings = load(AggregatorSettings, flags, file)
    except InvalidConfig as error:
        print(f"python -m aggregator: {error.detail}", file=sys.stderr)
        return app.EXIT_CONFIG
    return app.run(settings)


if __name__ == "__main__":
    sys.exit(main())
