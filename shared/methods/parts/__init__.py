"""Parts of methods, one file each, with the client's half and the server's half of it: part.py says what a part can do."""
