"""The documents as a static site: Sphinx's configuration and extensions, the generated page, the check of citations."""
