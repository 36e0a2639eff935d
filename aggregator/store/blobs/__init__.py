"""Blobs on disk, named by SHA-256: stored, uploaded, held and collected."""
