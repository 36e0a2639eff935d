"""What a deployment needs besides the program: files for Compose, images, systemd, Kubernetes, Prometheus and Grafana.

They lie in the wheel by links, in the shape of a clone, so that each line of a guide is typed in either; images install the
wheel that lies beside the Dockerfile, in a clone too. A wheel made again of the installation would not have the signed
SHA-256.
"""
