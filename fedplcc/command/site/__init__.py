"""`fedplcc site ...`: what the owner of a site decides there, and what left it."""
