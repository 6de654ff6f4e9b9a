"""Answers that come by HTTP: signed callback URLs, and webhooks in formats of partners."""
