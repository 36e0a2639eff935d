"""The models that a task begins with, is checked against, and keeps."""
