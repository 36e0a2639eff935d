"""Who may join and who may steer: the authority of certificates."""
