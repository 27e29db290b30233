"""``parley keys master|rotate``: the keys that seal the store."""

import asyncio
import sys
from collections.abc import Sequence

from parley.base.settings import Settings
from parley.cli.opening import existing_keyring, open_rows
from parley.credentials import rotate
from parley.keyring import KEY_FILE, Keyring, has_keys, new_key


def print_master_key(settings: Settings, key_id: str | None) -> None:
    """Print a fresh entry for PARLEY_MASTER_KEYS, under an id that is not taken."""
    taken: Sequence[str] = ()
    if has_keys(settings.master_keys, settings.data_dir):
        taken = existing_keyring(settings).key_ids
    number = next(number for number in range(1, len(taken) + 2) if f"k{number}" not in taken)
    print(new_key(key_id or f"k{number}"))
    place = "PARLEY_MASTER_KEYS" if settings.master_keys else str(settings.data_dir / KEY_FILE)
    print(
        f"To seal with it: put it in front of the keys in {place} (with a comma between), restart every server, "
        "then run: parley keys rotate",
        file=sys.stderr,
    )


def rotate_master_key(settings: Settings) -> int:
    """Seal everything under the first master key, and say which keys may go; the exit code."""
    keyring = existing_keyring(settings)

    async def work() -> int:
        async with open_rows(settings) as store:
            rotated = await rotate(store, keyring, _show_progress)
        print(f"Sealed anew under {keyring.primary}: {_rows(rotated.moved)}.")
        for key_id, rows in sorted(rotated.broken.items()):
            print(f"Left alone, because they do not open: {_rows(rows)} under {key_id}. {_why_broken(keyring, key_id)}")
        for key_id in keyring.key_ids[1:]:
            print(_verdict(key_id, rotated.sealed.get(key_id, 0)))
        return 1 if rotated.broken else 0

    return asyncio.run(work())


def _show_progress(moved: int) -> None:
    print(f"{_rows(moved)} so far", file=sys.stderr, flush=True)


def _why_broken(keyring: Keyring, key_id: str) -> str:
    if key_id in keyring.key_ids:
        return "They are damaged, or belong elsewhere: connect those credentials again."
    return f"{key_id} is not among the master keys. Add it and run this again, or connect those credentials again."


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


def _verdict(key_id: str, rows: int) -> str:
    if rows:
        return (
            f"{key_id} still seals {_rows(rows)}. Restart every server with the new first key, then run this again: "
            "parley keys rotate"
        )
    return (
        f"{key_id} seals nothing any more. Take it out of the master keys, and keep it with the backups of this store "
        "made until today."
    )
