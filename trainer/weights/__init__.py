"""Backbones at a site: trained weights that its owner keeps, each named by what it holds."""
