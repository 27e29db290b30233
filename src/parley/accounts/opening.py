"""Putting accounts together over one store."""

from dataclasses import dataclass

from parley.accounts import pass_store as rows
from parley.accounts.callers import Callers
from parley.accounts.invitations import Invitations
from parley.accounts.keys import ApiKeys, load_pepper
from parley.accounts.model import Seats
from parley.accounts.organizations import Organizations
from parley.accounts.sessions import Sessions
from parley.base.clock import Clock
from parley.keyring import Keyring
from parley.storage import Store


@dataclass(frozen=True, slots=True)
class Accounts:
    """People, organizations, and what lets them in.

    The server runs ``callers.uses.keep_writing()`` as one of its tasks, and ``close`` at its end.
    """

    callers: Callers
    keys: ApiKeys
    organizations: Organizations
    invitations: Invitations
    sessions: Sessions
    clock: Clock

    async def close(self) -> None:
        """Write what is left, and let the password threads go."""
        self.sessions.passwords.close()
        await self.callers.uses.write_down()


async def open_accounts(store: Store, keyring: Keyring, clock: Clock, seats: Seats) -> Accounts:
    """Accounts over a migrated store; after ``first_start``, whose key may have no checksum.

    Raises SealBroken when the keyring is not the one this store was made with.
    """
    pepper = await load_pepper(store, keyring, clock)
    opaque_keys = frozenset(await store.read(rows.opaque_hashes))
    callers = Callers(store, clock, pepper, opaque_keys)
    invitations = Invitations(store, clock, seats, callers.forget_user)
    return Accounts(
        callers=callers,
        keys=ApiKeys(store, clock, pepper, callers.forget_key),
        organizations=Organizations(store, clock, callers.forget_user),
        invitations=invitations,
        sessions=Sessions(store, clock, callers, invitations),
        clock=clock,
    )
