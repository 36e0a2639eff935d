"""`fedplcc model ...`: use the model of a run."""
