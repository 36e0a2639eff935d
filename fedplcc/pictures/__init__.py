"""Pictures of what a run has learnt, each with the numbers behind it.

    fedplcc model map        test images, local and global prototypes on a plane, before and after training
    fedplcc model clusters   how many samples stand behind each local and each global prototype

What is drawn is pure data: `points.py`, `projection.py` and `feature_map.py` for the map, `cluster_sizes.py` for the sizes.
`shown_clients.py`, `image_sample.py` and `models.py` get models and images; `style.py`, `map_drawing.py` and
`cluster_drawing.py` draw, and are the only ones that know matplotlib. `making.py` puts the parts together, and
`cell.py` makes every picture of a run's folder for a report.
"""

MAP, CLUSTERS = "map.png", "clusters.png"
"""What the pictures are called where nobody says how, here so that to look for them loads nothing."""
