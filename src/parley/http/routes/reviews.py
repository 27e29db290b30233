"""What people decide of the actions of their own integrations, as it comes in: imported APIs and MCP servers alike."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, Field, StringConstraints

from parley.integrations.effects import EffectKind
from parley.integrations.own import Review

MOST_ACTIONS = 500

type ActionName = Annotated[str, StringConstraints(min_length=1, max_length=150)]


class ReviewIn(BaseModel):
    """What one action does; null takes a decision back."""

    name: ActionName
    fingerprint: Annotated[str, StringConstraints(min_length=1, max_length=64)]
    effect: EffectKind | None


class ReviewsIn(BaseModel):
    """Decisions on several actions: all of them are noted, or none."""

    reviews: Annotated[list[ReviewIn], Field(min_length=1, max_length=MOST_ACTIONS)]

    def noted(self) -> Sequence[Review]:
        """The same without its wire form."""
        return [Review(each.name, each.fingerprint, each.effect) for each in self.reviews]
