"""AES-256-GCM envelopes under named master keys (trust §4).

A sealed value is ``version | nonce | wrapped data key | nonce | ciphertext``: a fresh data key for
every write, wrapped by a subkey of one master key. The associated data names the organization, the
row and the column, so that a row moved elsewhere does not open.
"""

import base64
import binascii
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

VERSION = b"\x01"
KEY_BYTES = 32
NONCE_BYTES = 12
WRAPPED_BYTES = KEY_BYTES + 16
KEY_FILE = "master.keys"


class KeyringError(Exception):
    """The master keys cannot be used; the message says why and what to do."""


class SealBroken(Exception):
    """A sealed value does not open: another key, another row, or changed bytes."""


class Keyring:
    """Master keys by id; the first one seals, all of them open."""

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        if not keys:
            raise KeyringError("There is no master key. Set PARLEY_MASTER_KEYS or remove the empty key file.")
        self._wrapping = {key_id: _subkey(key, b"parley/vault/1") for key_id, key in keys.items()}
        self.primary = next(iter(keys))

    @property
    def key_ids(self) -> tuple[str, ...]:
        """Every key that opens, the sealing one first."""
        return tuple(self._wrapping)

    def seal(self, plain: bytes, *, context: str) -> tuple[bytes, str]:
        """The sealed bytes and the id of the key that seals them.

        ``context`` is the associated data, such as ``credentials|<org>|<id>|auth_data``.
        """
        data_key = secrets.token_bytes(KEY_BYTES)
        wrap_nonce, nonce = secrets.token_bytes(NONCE_BYTES), secrets.token_bytes(NONCE_BYTES)
        bound = _bound(self.primary, context)
        wrapped = AESGCM(self._wrapping[self.primary]).encrypt(wrap_nonce, data_key, bound)
        body = AESGCM(data_key).encrypt(nonce, plain, bound)
        return VERSION + wrap_nonce + wrapped + nonce + body, self.primary

    def open(self, sealed: bytes, *, key_id: str, context: str) -> bytes:
        """The plain bytes. Raises SealBroken when anything does not fit."""
        wrapping = self._wrapping.get(key_id)
        if wrapping is None:
            raise SealBroken(f"Master key {key_id} is not in PARLEY_MASTER_KEYS. Add it to read what it sealed.")
        head = 1 + NONCE_BYTES + WRAPPED_BYTES
        if len(sealed) < head + NONCE_BYTES + 16 or sealed[:1] != VERSION:
            raise SealBroken("The sealed value is damaged.")
        bound = _bound(key_id, context)
        try:
            data_key = AESGCM(wrapping).decrypt(sealed[1 : 1 + NONCE_BYTES], sealed[1 + NONCE_BYTES : head], bound)
            return AESGCM(data_key).decrypt(sealed[head : head + NONCE_BYTES], sealed[head + NONCE_BYTES :], bound)
        except InvalidTag:
            raise SealBroken("The sealed value does not belong to this row, or was changed.") from None


def load_keyring(master_keys: str, data_dir: Path) -> Keyring:
    """The keyring from ``PARLEY_MASTER_KEYS`` (``id:base64,…``), else from a 0600 file made at first start.

    Raises KeyringError when a key is malformed, short or a known sample, or the file is readable by others.
    """
    if not has_keys(master_keys, data_dir):
        write_keys(new_key("k1"), data_dir)
    return Keyring(parse_keys(*key_text(master_keys, data_dir)))


def has_keys(master_keys: str, data_dir: Path) -> bool:
    """Whether there are master keys already, in ``PARLEY_MASTER_KEYS`` or in the file."""
    return bool(master_keys) or (data_dir / KEY_FILE).exists()


def key_text(master_keys: str, data_dir: Path) -> tuple[str, str]:
    """The text of the master keys, and where it stands: ``PARLEY_MASTER_KEYS``, else the file.

    Raises KeyringError for a file that others can read, FileNotFoundError for one that is not there.
    """
    if master_keys:
        return master_keys, "PARLEY_MASTER_KEYS"
    path = data_dir / KEY_FILE
    if path.stat().st_mode & 0o077:
        raise KeyringError(f"{path} can be read by other users. Run: chmod 600 {path}")
    return path.read_text(encoding="ascii").strip(), str(path)


def new_key(key_id: str) -> str:
    """One fresh entry for ``PARLEY_MASTER_KEYS``."""
    return f"{key_id}:{base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()}"


def write_keys(text: str, data_dir: Path) -> None:
    """Keep master keys in a file that only its owner can read; one that is there already stays."""
    path = data_dir / KEY_FILE
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    scratch = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(scratch, path)  # never replaces a key another process made first
    except FileExistsError:
        pass
    finally:
        scratch.unlink()


def parse_keys(text: str, source: str) -> dict[str, bytes]:
    """Master keys by id. Raises KeyringError, naming the ``source``, for one that is malformed or a known sample."""
    keys: dict[str, bytes] = {}
    for entry in text.replace("\n", ",").split(","):
        if not entry.strip():
            continue
        key_id, _, encoded = entry.strip().partition(":")
        try:
            key = base64.b64decode(encoded, validate=True)
        except binascii.Error:
            raise KeyringError(f"{source}: key {key_id!r} is not base64") from None
        if len(key) != KEY_BYTES:
            raise KeyringError(f"{source}: key {key_id!r} must be {KEY_BYTES} bytes, not {len(key)}")
        if len(set(key)) < 8:
            raise KeyringError(f"{source}: key {key_id!r} is not random. Make one with: parley keys master")
        if not key_id or len(key_id) > 40 or key_id in keys:
            raise KeyringError(f"{source}: key ids must be present, unique and at most 40 characters")
        keys[key_id] = key
    return keys


def _subkey(key: bytes, purpose: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=purpose).derive(key)


def _bound(key_id: str, context: str) -> bytes:
    return f"v1|{key_id}|{context}".encode()
