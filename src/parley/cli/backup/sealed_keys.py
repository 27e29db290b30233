"""The master keys inside a backup, only where an operator asks for it: sealed under a passphrase of theirs."""

import os
import secrets

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from parley.cli.backup.archive import BackupUnusable

VERSION = b"\x01"
SALT_BYTES, NONCE_BYTES = 16, 12
SHORTEST_PASSPHRASE = 12
BOUND = b"parley/backup/keys/1"


class PassphraseTooShort(BackupUnusable):
    """Whoever has the backup can try passphrases for ever: choose one of at least 12 characters."""

    def __init__(self) -> None:
        super().__init__(type(self).__doc__)


def seal_keys(keys: str, passphrase: str) -> bytes:
    """The text of ``PARLEY_MASTER_KEYS``, sealed. Raises PassphraseTooShort."""
    if len(passphrase) < SHORTEST_PASSPHRASE:
        raise PassphraseTooShort
    salt, nonce = secrets.token_bytes(SALT_BYTES), os.urandom(NONCE_BYTES)
    return VERSION + salt + nonce + AESGCM(_key(passphrase, salt)).encrypt(nonce, keys.encode(), BOUND)


def open_keys(sealed: bytes, passphrase: str) -> str:
    """The text again. Raises BackupUnusable for another passphrase or changed bytes."""
    salt, nonce = sealed[1 : 1 + SALT_BYTES], sealed[1 + SALT_BYTES : 1 + SALT_BYTES + NONCE_BYTES]
    body = sealed[1 + SALT_BYTES + NONCE_BYTES :]
    try:
        return AESGCM(_key(passphrase, salt)).decrypt(nonce, body, BOUND).decode()
    except (InvalidTag, ValueError):
        raise BackupUnusable("The master keys in the backup do not open with this passphrase.") from None


def _key(passphrase: str, salt: bytes) -> bytes:
    return Scrypt(salt=salt, length=32, n=2**15, r=8, p=1).derive(passphrase.encode())
