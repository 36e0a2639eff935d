"""Changes of training images, batch by batch."""
