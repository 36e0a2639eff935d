"""Clients of the gateway and of services' health."""
