"""Shipped test parts: a scripted model provider, a TLS proxy for provider APIs, a running server."""
