"""Features of a frozen backbone: computed once for each image of a site, and kept."""
