"""Blobs on disk, named by SHA-256: storage, uploads, holds against garbage collection."""
