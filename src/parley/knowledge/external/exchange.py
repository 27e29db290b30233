"""One bounded question to a store that speaks HTTP, and its answer read with a type."""

from collections.abc import Collection
from dataclasses import dataclass, field

import msgspec

from parley.credentials import Usable
from parley.egress import Egress, Refused, Response, Unreachable
from parley.knowledge.external.passages import StoreUnavailable
from parley.knowledge.model import MIB, BadConfig
from parley.turn.model import JsonObject

SECONDS = 8.0
MOST_BYTES = 8 * MIB
UNAUTHORIZED = frozenset({401, 403})
NOT_NOW = 429


class AccessDenied(BadConfig):
    """The store does not accept the credential."""


@dataclass(frozen=True, slots=True)
class Account:
    """A store as its owner's credential opens it."""

    egress: Egress
    usable: Usable
    display_name: str
    headers: dict[str, str] = field(repr=False)

    async def ask[T](
        self,
        method: str,
        url: str,
        kind: type[T],
        body: JsonObject | None = None,
        *,
        missing: str,
    ) -> T:
        """Ask and read; ``missing`` is the sentence for 404.

        Raises BadConfig, AccessDenied or StoreUnavailable; a sentence never holds what the store said.
        """
        response = await self.send(method, url, body)
        self.refuse(response, missing)
        return self.read(response, kind)

    async def send(self, method: str, url: str, body: JsonObject | None) -> Response:
        """The answer, whatever its status. Raises BadConfig where the guard refuses, or StoreUnavailable."""
        try:
            return await self.egress.request(
                method, url, headers=self.headers, json=body, seconds=SECONDS, max_bytes=MOST_BYTES
            )
        except Refused as error:
            raise BadConfig(str(error)) from error
        except Unreachable as error:
            raise StoreUnavailable(f"{self.display_name} cannot be searched: {error}") from error

    def refuse(self, response: Response, missing: str, accepted: Collection[int] = (200,)) -> None:
        """Raises for every status but the accepted ones."""
        status, name = response.status, self.display_name
        if status in accepted:
            return
        if status in UNAUTHORIZED:
            raise AccessDenied(
                f"{name} does not accept the credential {self.usable.display_name!r} ({status}). "
                "Add a new one under Integrations and choose it for this base."
            )
        if status == 404:
            raise BadConfig(missing)
        if status == NOT_NOW:
            raise StoreUnavailable(f"{name} takes no more questions for now. Try again in a minute.")
        if status >= 500:
            raise StoreUnavailable(f"{name} has trouble of its own ({status}). Try again in a moment.")
        raise BadConfig(f"{name} does not understand the search ({status}). Check external_config and filters.")

    def read[T](self, response: Response, kind: type[T]) -> T:
        """The body. Raises StoreUnavailable for what is not such an answer."""
        try:
            return msgspec.json.decode(response.body, type=kind)
        except (msgspec.MsgspecError, RecursionError):
            raise StoreUnavailable(
                f"{self.display_name} gave an answer that cannot be read. Check the address in its credential."
            ) from None
