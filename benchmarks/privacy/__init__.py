"""What may be told of training images from what clients send."""
