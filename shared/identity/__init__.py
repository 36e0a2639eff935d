"""Identity: names, certificates, keys and the chain of the audit; pure."""
