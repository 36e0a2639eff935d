"""`fedplcc run ...`: start and steer runs of a deployed federation through its gateway. A command or two a file."""
