"""Methods whose losses draw features to prototypes."""
