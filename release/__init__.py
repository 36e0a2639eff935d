"""A release: what is built, listed, signed and bundled from one commit. `python -m release --help`, docs/release.md."""
