"""A picture of a run's features and prototypes, with the numbers behind it.

    fedplcc model map        test images, local and global prototypes on a plane, before and after training

`points.py`, `projection.py` and `feature_map.py` compute the map as pure data. `shown_clients.py`, `image_sample.py` and
`models.py` read models and images. `style.py` and `map_drawing.py` draw; only they use matplotlib. `making.py` combines the
parts.
"""

MAP = "map.png"
"""Default name of the picture."""
