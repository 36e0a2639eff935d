"""Pictures of a run's features and prototypes, each with the numbers behind it.

    fedplcc model map        test images, local and global prototypes on a plane, before and after training
    fedplcc model clusters   the number of samples behind each local and each global prototype

`points.py`, `projection.py` and `feature_map.py` compute the map and `cluster_sizes.py` the sizes, as pure data.
`shown_clients.py`, `image_sample.py` and `models.py` read models and images. `style.py`, `map_drawing.py` and
`cluster_drawing.py` draw; only they use matplotlib. `making.py` combines the parts, and `cell.py` makes all pictures of
a run's folder for a report.
"""

MAP, CLUSTERS = "map.png", "clusters.png"
"""Default names of the pictures; they are here so that looking for pictures loads nothing else."""
