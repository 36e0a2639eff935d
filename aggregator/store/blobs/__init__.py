"""Blobs on disk, named by SHA-256: files, uploads, and holds against garbage collection."""
