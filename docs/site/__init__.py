"""The documents as a static site: Sphinx's configuration and extensions and the generated page."""
