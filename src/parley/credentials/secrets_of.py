"""Every secret an organization holds, to clear from what leaves in bulk: exports, bundles, traces."""

import logging
from collections.abc import Callable

from parley.credentials import store as rows
from parley.credentials.model import Credential
from parley.credentials.vault import CannotOpen, Vault
from parley.integrations import PLAIN_FIELDS, texts_of
from parley.storage import ReadTx

log = logging.getLogger(__name__)

type PlainFields = Callable[[Credential], frozenset[str]]


def _plain(_credential: Credential) -> frozenset[str]:
    return PLAIN_FIELDS


def secrets_of(tx: ReadTx, organization_id: str, vault: Vault, plain: PlainFields = _plain) -> frozenset[str]:
    """The values of its own credentials, but for the names that ``plain`` gives for each.

    One that does not open any more is passed over: results were cleared of it when it was used.
    """
    found: set[str] = set()
    for stored in rows.own(tx, organization_id):
        try:
            opened = vault.open(stored)
        except CannotOpen:
            log.warning("credential %s does not open, so nothing is cleared of it", stored.credential.credential_id)
            continue
        shown = plain(stored.credential)
        found |= texts_of({name: value for name, value in opened.auth_data.items() if name not in shown})
        if opened.app is not None:
            found.add(opened.app.client_secret)
    return frozenset(found)
