"""Making the effect table again, for the people who review it; the server imports none of it."""
