"""Admission to the federation: who issues certificates, who gets one, who has lost one."""
