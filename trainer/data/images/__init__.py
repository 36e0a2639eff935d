"""Files of images: their endings, and their pixels as 8-bit RGB."""
