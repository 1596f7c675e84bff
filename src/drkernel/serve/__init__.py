"""The grading service: HTTP server, client, durable store."""
