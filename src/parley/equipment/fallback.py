"""The organization's fall-back model: it takes a run over when the chosen one's provider is down (decision 0017)."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from parley.equipment.llms import OpenModel
from parley.runs.journal import RunJournal
from parley.turn.model import Model, ModelError, ModelErrorKind, Prompt, ReplyPart, TextDelta, Usage
from parley.turn.pace import Turn

WHY: dict[ModelErrorKind, str] = {
    "down": "its provider is not working properly just now",
    "rate": "its provider limits requests just now",
}
"""The failures that another provider does not share, and how people are told of them."""


class FallbackModel:
    """A run's model, fulfilling ``turn.model.Model``, with another one behind it.

    A step of which nothing has been shown goes to the other model, once the adapter's own tries are
    used up; so does the rest of the run, which would else wait for the same tries again in each step.
    """

    def __init__(
        self,
        chosen: OpenModel,
        open_second: Callable[[], Awaitable[OpenModel]],
        metered: Callable[[OpenModel], Model],
        turn: Turn,
        journal: RunJournal,
    ) -> None:
        self._present = chosen
        self._model = metered(chosen)
        self._open_second = open_second
        self._metered = metered
        self._turn = turn
        self._journal = journal
        self._fallen = False

    async def reply(self, prompt: Prompt) -> AsyncGenerator[ReplyPart]:
        """Stream the reply of whichever model answers. Raises ModelError, which names both where both failed."""
        first: ModelError | None = None
        while True:
            shown = False
            try:
                async with aclosing(self._model.reply(prompt)) as stream:
                    async for part in stream:
                        shown = shown or isinstance(part, TextDelta)
                        yield part
                return
            except ModelError as error:
                if first is not None:
                    raise self._both(first, error) from error
                if shown or self._fallen or error.kind not in WHY:
                    raise
                first = error
            await self._take_over(first)

    def partial_usage(self) -> Usage:
        """Tokens of the call that was stopped."""
        return self._model.partial_usage()

    async def _take_over(self, failure: ModelError) -> None:
        """Go on with the other model, and say so. Raises ModelError when it cannot be used."""
        try:
            second = await self._open_second()
        except ModelError as error:
            public = f"{failure.public} The fall-back model cannot be used: {error.public}"
            raise ModelError(error.kind, public, usage=failure.usage) from error
        self._turn.spend(failure.usage)
        message = (
            f"{self._present.model_id} could not answer: {WHY[failure.kind]}. "
            f"{second.model_id}, the organization's fall-back model, goes on with this turn."
        )
        await self._journal.fell_back(message, self._turn.model_calls)
        self._fallen = True
        self._present = second
        self._model = self._metered(second)
        self._turn.window_tokens = second.window_tokens

    def _both(self, first: ModelError, second: ModelError) -> ModelError:
        public = f"{first.public} The fall-back model {self._present.model_id} failed too: {second.public}"
        return ModelError(second.kind, public, usage=second.usage, text=second.text)
