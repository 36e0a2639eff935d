"""What the owner of a site decides: the code that is run there, the runs that it takes part in, and what leaves it."""
