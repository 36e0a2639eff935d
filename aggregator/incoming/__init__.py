"""What comes in: models, blobs of updates, commits and reports, each checked and bounded before it counts."""
