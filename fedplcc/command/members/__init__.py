"""Commands for members and people of a federation: invitations, certificates, keys."""
