"""Which model a turn runs on, and whether it can (contract §2.1, §2.2)."""

from dataclasses import dataclass

from parley.accounts import Accounts
from parley.accounts import LlmChoice as SavedChoice
from parley.base.errors import BadRequest, Refusal
from parley.base.ids import is_id
from parley.credentials import Credentials, Usable
from parley.llm import MANAGED, LlmConfig, LlmCredential, Models
from parley.turn.model import JsonObject, Model, ModelError


class CredentialUnknown(BadRequest):
    """llm.credential_id is not a credential of this organization for this provider."""


@dataclass(frozen=True, slots=True)
class LlmChoice:
    """A model as a request names it (contract §2.1)."""

    integration_name: str
    provider_id: str
    model_id: str
    credential_id: str | None = None
    temperature: float | None = None

    def as_json(self) -> JsonObject:
        """The form kept on the run's row."""
        return {
            "integration_name": self.integration_name,
            "provider_id": self.provider_id,
            "model_id": self.model_id,
            "credential_id": self.credential_id,
            "temperature": self.temperature,
        }

    def same_model(self, other: "LlmChoice") -> bool:
        """Whether both lead to one model over one credential."""
        mine = (self.integration_name, self.model_id, self.credential_id)
        return mine == (other.integration_name, other.model_id, other.credential_id)

    @property
    def config(self) -> LlmConfig:
        """The same as ``parley.llm`` knows it."""
        return LlmConfig(self.integration_name, self.provider_id, self.model_id, self.temperature)


def choice_from_json(value: JsonObject) -> LlmChoice:
    """A choice from a run's row or from the organization's settings."""
    credential_id, temperature = value.get("credential_id"), value.get("temperature")
    return LlmChoice(
        str(value["integration_name"]),
        str(value["provider_id"]),
        str(value["model_id"]),
        str(credential_id) if credential_id else None,
        float(temperature) if isinstance(temperature, int | float) else None,
    )


def saved_choice(saved: SavedChoice) -> LlmChoice:
    """A choice as the organization's settings keep it."""
    return LlmChoice(saved.integration_name, saved.provider_id, saved.model_id, saved.credential_id)


@dataclass(frozen=True, slots=True)
class OpenModel:
    """A model ready for one run, and who pays for it."""

    model: Model
    integration_name: str
    model_id: str
    managed: bool
    credential_id: str | None
    window_tokens: int


class Llms:
    """The models an organization can use."""

    def __init__(self, models: Models, credentials: Credentials, accounts: Accounts) -> None:
        self.models = models
        self._credentials = credentials
        self._accounts = accounts

    async def check(self, organization_id: str, choice: LlmChoice | None) -> LlmChoice:
        """The model a turn is to run on: the named one, else the organization's default.

        Raises CredentialUnknown, UnknownProvider, UnknownModel or CredentialNeeded.
        """
        wanted = choice or await self._default(organization_id)
        usable = await self._usable(organization_id, wanted)
        self.models.open(wanted.config, _llm_credential(usable))
        return wanted

    async def open(self, organization_id: str, choice: LlmChoice) -> OpenModel:
        """The model for one run. Raises ModelError with a sentence for people where it cannot be used any more."""
        try:
            usable = await self._usable(organization_id, choice)
            model = self.models.open(choice.config, _llm_credential(usable))
        except Refusal as refusal:
            raise ModelError("auth", refusal.detail) from refusal
        return OpenModel(
            model,
            choice.integration_name,
            choice.model_id,
            managed=choice.integration_name == MANAGED,
            credential_id=usable.credential_id if usable else None,
            window_tokens=self.models.facts(choice.config).context_tokens,
        )

    async def names(self, organization_id: str) -> list[str]:
        """What an organization can choose now: ``provider/model``, or ``modulexai/provider/model`` for a pooled one.

        A provider whose models only its own server knows has none here, and takes any.
        """
        managed = [f"{MANAGED}/{name}/{each.id}" for name, models in self.models.pooled().items() for each in models]
        held = {group.integration_name for group in await self._credentials.list(organization_id)}
        own = [
            f"{provider.name}/{each.id}"
            for provider in self.models.providers()
            if provider.name != MANAGED and (provider.name in held or not self.models.needs_credential(provider.name))
            for each in self.models.of(provider.name)
        ]
        return managed + own

    async def _default(self, organization_id: str) -> LlmChoice:
        saved = (await self._accounts.organizations.settings(organization_id)).default_llm
        if saved is not None:
            return saved_choice(saved)
        suggested = self.models.suggested()
        return LlmChoice(suggested.integration_name, suggested.provider_id, suggested.model_id)

    async def _usable(self, organization_id: str, choice: LlmChoice) -> Usable | None:
        """The organization's own credential for the provider; None for a provider that needs none."""
        if choice.credential_id is None and not self.models.needs_credential(choice.integration_name):
            return None
        if choice.credential_id is not None and not is_id(choice.credential_id):
            raise CredentialUnknown
        usable = await self._credentials.resolve(
            organization_id, choice.integration_name, credential_id=choice.credential_id
        )
        if usable is None and choice.credential_id is not None:
            raise CredentialUnknown
        return usable


def _llm_credential(usable: Usable | None) -> LlmCredential | None:
    if usable is None:
        return None
    base_url = usable.auth_data.text("base_url")
    return LlmCredential(usable.auth_data.text("api_key"), base_url or None, usable.display_name)
