"""Identifiers: UUID text on the wire and in the store."""

import uuid


def new_id() -> str:
    """A fresh UUID as lower-case text."""
    return str(uuid.uuid4())


def is_id(text: str) -> bool:
    """Whether the text is a UUID in its canonical lower-case form."""
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False
