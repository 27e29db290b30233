"""What several routes say alike: refusals in the OpenAPI document, and what people say of actions."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, Field, StringConstraints

from parley.integrations.effects import EffectKind
from parley.integrations.own import Review

MOST_ACTIONS = 500

type ActionName = Annotated[str, StringConstraints(min_length=1, max_length=150)]


class Detail(BaseModel):
    """Why not, in one sentence."""

    detail: str


class Fault(BaseModel):
    """What does not fit, and where it stands."""

    loc: list[str | int]
    msg: str
    type: str


class Malformed(BaseModel):
    """Why a request does not fit its schema."""

    detail: list[Fault]


class DenialEnvelope(BaseModel):
    """The admission gate's refusal (contract §9.3)."""

    code: str
    layer: str
    key: str | None
    current: float | None
    limit: float | None
    reason: str


class WrappedDenial(BaseModel):
    """The refusal of an ordinary route past the plan's rate (contract §10, 4)."""

    detail: DenialEnvelope


class ReviewIn(BaseModel):
    """What one action does; null takes a decision back."""

    name: ActionName
    fingerprint: Annotated[str, StringConstraints(min_length=1, max_length=64)]
    effect: EffectKind | None


class ReviewsIn(BaseModel):
    """Decisions on several actions, of a server or of an imported API: all of them are noted, or none."""

    reviews: Annotated[list[ReviewIn], Field(min_length=1, max_length=MOST_ACTIONS)]

    def noted(self) -> Sequence[Review]:
        """The same without its wire form."""
        return [Review(each.name, each.fingerprint, each.effect) for each in self.reviews]


# One server-sent event; a stream is told by what each event of it is.
EVENT: dict[str, Any] = {
    "type": "object",
    "required": ["data"],
    "properties": {"data": {"type": "string"}, "id": {"type": "string"}},
}
SENTENCES = {
    400: "The request cannot be carried out as it is",
    401: "No valid key or session",
    402: "Out of credits",
    403: "Not allowed",
    404: "Not found",
    408: "The request did not arrive in time",
    409: "Not possible in the present state",
    410: "No longer possible",
    413: "The request is too large",
    422: "The request does not fit its schema",
    429: "Too many requests",
    500: "The turn failed",
    503: "Not possible right now",
    504: "The turn takes longer than a request may",
}


def described(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI descriptions of the refusals a route can answer with.

    Those that every route with a key has are included: of identity, of its rates, and of a store that is away.
    """
    models: dict[int, Any] = {
        402: DenialEnvelope,
        403: Detail | DenialEnvelope,
        429: DenialEnvelope | WrappedDenial | Detail,
    }
    every = sorted({400, 401, 403, 429, 503, *statuses} - {422})
    return {status: {"model": models.get(status, Detail), "description": SENTENCES[status]} for status in every}


NOT_FOUND = described(404)
