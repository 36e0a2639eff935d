"""Who is who in a federation: names, certificates, invitations, keys of people and programs."""
