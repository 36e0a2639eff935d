"""Commands for what a person writes or brings: configurations, comparisons and data."""
