"""First start: with an empty store, an owner, an organization and an API key (README decision 10)."""

from dataclasses import dataclass, field

from parley.accounts import pass_store as passes
from parley.accounts import store as rows
from parley.accounts.keys import PREFIX, digest, has_checksum, load_pepper, mask, new_key
from parley.accounts.model import ApiKey, Organization
from parley.accounts.organizations import OPERATOR, establish, free_slug
from parley.accounts.sessions import add_link
from parley.base.clock import Clock
from parley.base.ids import is_id, new_id
from parley.base.settings import Settings, SettingsError
from parley.keyring import Keyring
from parley.storage import Store, WriteTx

OWNER_EMAIL = "owner@localhost"
ORGANIZATION_NAME = "My organization"
KEY_NAME = "First start"
# The operator's own key: its rate is the machine's.
UNLIMITED_RATE = 1_000_000
LONGEST_KEY = 256
SHORTEST_SAFE_KEY = len(PREFIX) + 22


@dataclass(frozen=True, slots=True)
class FirstStart:
    """What was made, to be printed once and never seen again.

    ``api_key`` is None when the operator chose it. ``warning`` is a sentence where the chosen key
    is easily guessed.
    """

    organization_id: str
    email: str
    sign_in_link: str = field(repr=False)
    api_key: str | None = field(repr=False)
    warning: str | None = None


async def first_start(store: Store, keyring: Keyring, settings: Settings, clock: Clock) -> FirstStart | None:
    """Make the owner, the organization and the API key; None when the store has users already.

    Of processes that start together on one store, one makes them. Raises SettingsError when a
    ``PARLEY_BOOTSTRAP_*`` variable cannot be used, SealBroken when the keyring is another one.
    """
    wish = _wish(settings)
    pepper = await load_pepper(store, keyring, clock)
    return await store.write(lambda tx: _make(tx, wish, pepper, settings.base_url, clock.now()))


@dataclass(frozen=True, slots=True)
class _Wish:
    key: str = field(repr=False)
    chosen: bool
    organization_id: str
    email: str


def _wish(settings: Settings) -> _Wish:
    key, organization_id = settings.bootstrap_api_key, settings.bootstrap_organization_id.lower()
    email = settings.bootstrap_email.strip().lower() or OWNER_EMAIL
    if key and not (key.startswith(PREFIX) and len(PREFIX) < len(key) <= LONGEST_KEY and _is_plain(key)):
        raise SettingsError(
            f"PARLEY_BOOTSTRAP_API_KEY must start with {PREFIX} and have at most {LONGEST_KEY} characters, no spaces"
        )
    if organization_id and not is_id(organization_id):
        raise SettingsError(
            "PARLEY_BOOTSTRAP_ORGANIZATION_ID must be a UUID, such as 3f2c8e52-9d0b-4c39-8e5a-0d5b0c7f6a11"
        )
    if "@" not in email or not _is_plain(email) or len(email) > 320:
        raise SettingsError("PARLEY_BOOTSTRAP_EMAIL must be an e-mail address, such as you@example.com")
    return _Wish(key=key or new_key(), chosen=bool(key), organization_id=organization_id or new_id(), email=email)


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text


def _make(tx: WriteTx, wish: _Wish, pepper: bytes, base_url: str, now: int) -> FirstStart | None:
    rows.lock_first_start(tx)
    if rows.anyone(tx):
        return None
    username = wish.email.partition("@")[0][:100]
    owner_id = rows.add_user(tx, email=wish.email, username=username, platform_role=OPERATOR, at=now)
    organization = Organization(
        id=wish.organization_id,
        name=ORGANIZATION_NAME,
        slug=free_slug(tx, ORGANIZATION_NAME),
        domain=None,
        is_active=True,
        created_at=now,
    )
    establish(tx, organization, owner_id)
    key = ApiKey(
        id=new_id(),
        user_id=owner_id,
        name=KEY_NAME,
        masked_key=mask(wish.key),
        organization_id=None,
        rate_limit_per_minute=UNLIMITED_RATE,
        expires_at=None,
        last_used_at=None,
        created_at=now,
        revoked_at=None,
    )
    passes.add_key(tx, key, key_hash=digest(pepper, wish.key), opaque=not has_checksum(wish.key))
    return FirstStart(
        organization_id=organization.id,
        email=wish.email,
        sign_in_link=f"{base_url}/app/#sign-in={add_link(tx, owner_id, now)}",
        api_key=None if wish.chosen else wish.key,
        warning=_warning(wish.key),
    )


def _warning(key: str) -> str | None:
    if len(key) >= SHORTEST_SAFE_KEY:
        return None
    return "PARLEY_BOOTSTRAP_API_KEY is short enough to guess. Use it on this machine only, or revoke it soon."
