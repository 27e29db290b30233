"""The wire: routes, errors, streams, identity."""
