"""Finding out what can be done: the two-step discovery, and which credentials exist (contract §6)."""

from typing import Annotated, Literal

import msgspec

from parley.tools.context import ToolContext
from parley.tools.spec import Step, tool
from parley.turn.model import Observed, ToolResult


class AvailableArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of ``get_available_integrations``."""

    integration_type: Annotated[
        Literal["all", "tools", "llm_providers", "knowledge_providers"],
        msgspec.Meta(description="Which part of the catalog to list."),
    ] = "all"
    query: Annotated[
        str | None,
        msgspec.Meta(
            description="Case-insensitive text that must occur in the name, display name, description, a category "
            "or an action name. Use it to keep the answer small."
        ),
    ] = None


class DetailsArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of ``get_integration_details``."""

    integration_name: Annotated[str, msgspec.Meta(description="The integration's name, for example github.")]
    action_name: Annotated[str | None, msgspec.Meta(description="Only this action; leave it out for all of them.")] = (
        None
    )


class CredentialsArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of ``get_organization_credentials``."""

    integration_name: Annotated[str | None, msgspec.Meta(description="Only credentials of this integration.")] = None


async def _available(context: ToolContext, arguments: AvailableArguments, _step: Step) -> ToolResult:
    shared = context.shared
    found = await shared.actions.available(
        context.organization_id, arguments.integration_type, arguments.query, shared.llm_providers()
    )
    return Observed(found)


async def _details(context: ToolContext, arguments: DetailsArguments, _step: Step) -> ToolResult:
    shared = context.shared
    found = await shared.actions.details(
        context.organization_id, arguments.integration_name, arguments.action_name, shared.llm_providers()
    )
    return Observed(found, failed="error" in found)


async def _credentials(context: ToolContext, arguments: CredentialsArguments, _step: Step) -> ToolResult:
    groups = await context.shared.credentials.list(
        context.organization_id, integration_name=arguments.integration_name, limit=500
    )
    return Observed(
        [
            {
                "credential_id": row.credential_id,
                "integration_name": row.metadata.get("integration", row.integration_name),
                "display_name": row.display_name,
                "auth_type": row.auth_type,
                "is_default": row.is_default,
                "is_valid": row.is_valid,
            }
            for group in groups
            for row in group.credentials
        ]
    )


GET_AVAILABLE_INTEGRATIONS = tool(
    "get_available_integrations",
    "List the integrations this organization could use: names, short descriptions, categories and action names. "
    "First step of finding the right action. Pass query to narrow it down.",
    AvailableArguments,
    _available,
)
GET_INTEGRATION_DETAILS = tool(
    "get_integration_details",
    "Read the actions of one integration with their parameters. Second step, before execute_integration_tool.",
    DetailsArguments,
    _details,
)
GET_ORGANIZATION_CREDENTIALS = tool(
    "get_organization_credentials",
    "List the credentials this organization has, without any secret: which integrations are connected, "
    "which credential is the default, which are valid.",
    CredentialsArguments,
    _credentials,
)
