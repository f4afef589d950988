"""What Prometheus is told: what is counted with each decision, and how things stand when it asks."""
