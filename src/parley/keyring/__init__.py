"""The master keys, and sealing bytes under them."""

from parley.keyring.keyring import (
    KEY_FILE,
    Keyring,
    KeyringError,
    SealBroken,
    has_keys,
    key_text,
    load_keyring,
    new_key,
    parse_keys,
    write_keys,
)

__all__ = [
    "KEY_FILE",
    "Keyring",
    "KeyringError",
    "SealBroken",
    "has_keys",
    "key_text",
    "load_keyring",
    "new_key",
    "parse_keys",
    "write_keys",
]
