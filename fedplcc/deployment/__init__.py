"""What a deployment needs besides the program: files for Compose, images, systemd, Kubernetes, Prometheus and Grafana."""
