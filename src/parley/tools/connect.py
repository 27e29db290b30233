"""Asking a person to connect an integration (seed using-tools, "Credential requests").

The model says which integration and which ways to connect it. Everything a person is shown or sent
to comes from the manifest: an injected model cannot put a phishing address behind "Connect".
"""

from typing import Annotated, Literal

import msgspec

from parley.base.ids import new_id
from parley.integrations import AuthSchema, Integration
from parley.tools.context import ToolContext
from parley.tools.spec import AnyObject, Step, failure, tool
from parley.turn.model import Answer, Asked, JsonObject, JsonValue, Observed, Question, ToolResult

OAUTH = "oauth2"
INITIATE_PATH = "/credentials/oauth2/initiate"


class AuthOption(msgspec.Struct, frozen=True):
    """One way to connect, as the model names it."""

    auth_type: Literal["oauth2", "api_key", "bearer_token", "modulex_key", "custom"]
    display_name: Annotated[str, msgspec.Meta(min_length=1)]
    fields: list[AnyObject] | None = None
    oauth_initiate_endpoint: str | None = None
    setup_instructions: list[str] | None = None
    test_supported: bool = False


class RequestArguments(msgspec.Struct, frozen=True):
    """Arguments of ``request_credential``."""

    integration_name: Annotated[str, msgspec.Meta(description="The integration's name, for example slack.")]
    integration_display_name: Annotated[str, msgspec.Meta(min_length=1, description="For example Slack.")]
    auth_options: Annotated[
        list[AuthOption],
        msgspec.Meta(
            description="One entry for each way to connect; take them from the needs_credential result as they are."
        ),
    ]
    integration_logo: str | None = None
    pending_node_name: str | None = None
    required: Annotated[
        bool, msgspec.Meta(description="True only when the task cannot go on without the credential.")
    ] = False
    context: AnyObject | None = None


def auth_options(integration: Integration, base_url: str) -> list[JsonValue]:
    """Every way to connect an integration, as the wire's CredentialAuthOption (contract §5.2)."""
    return [_option(schema, base_url) for schema in integration.auth_schemas if schema.auth_type != "internal"]


def _option(schema: AuthSchema, base_url: str) -> JsonObject:
    option: JsonObject = {
        "auth_type": schema.auth_type,
        "display_name": schema.display_name,
        "setup_instructions": list(schema.setup_instructions),
        "test_supported": schema.test_endpoint is not None,
    }
    if schema.auth_type == OAUTH:
        option["oauth_initiate_endpoint"] = f"{base_url}{INITIATE_PATH}"
        option["fields"] = [msgspec.to_builtins(field) for field in schema.fields if not field.sensitive]
    else:
        option["fields"] = [msgspec.to_builtins(field) for field in schema.fields]
    return option


async def _request(context: ToolContext, arguments: RequestArguments, _step: Step) -> ToolResult:
    integration = await context.shared.actions.integration(context.organization_id, arguments.integration_name)
    if integration is None:
        return failure(f"Integration '{arguments.integration_name}' not found")
    if not arguments.auth_options:
        return failure("invalid_arguments", message="auth_options needs at least one entry.")
    for option in arguments.auth_options:
        if option.auth_type == OAUTH and not option.oauth_initiate_endpoint:
            return failure("invalid_arguments", message="An oauth2 option needs its oauth_initiate_endpoint.")
    wanted = {option.auth_type for option in arguments.auth_options}
    offered = auth_options(integration, context.shared.settings.base_url)
    options = [option for option in offered if isinstance(option, dict) and option["auth_type"] in wanted]
    if not options:
        known = sorted({str(option["auth_type"]) for option in offered if isinstance(option, dict)})
        return failure(
            "invalid_arguments", message=f"{integration.display_name} can be connected by: {', '.join(known)}."
        )
    return Asked(_question(integration, arguments, list(options)))


def _question(integration: Integration, arguments: RequestArguments, options: list[JsonValue]) -> Question:
    request_id = new_id()
    payload: JsonObject = {
        "kind": "credential_request",
        "request_id": request_id,
        "message": f"Connect **{integration.display_name}** so that the assistant can go on.",
        "required": arguments.required,
        "allow_free_text": False,
        "context": arguments.context,
        "timeout_hint_seconds": None,
        "integration_name": integration.name,
        "integration_display_name": integration.display_name,
        "integration_logo": f"/app/logos/{integration.name}",
        "auth_options": options,
        "pending_node_name": None,
    }
    return Question(request_id, "credential_request", payload)


async def _connected(_context: ToolContext, _arguments: RequestArguments, _step: Step, answer: Answer) -> ToolResult:
    return Observed(answer.response)


REQUEST_CREDENTIAL = tool(
    "request_credential",
    "Ask the user to connect an integration that has no credential yet. Call it after execute_integration_tool "
    "returned needs_credential, then retry the action. Pauses until the user connects, fails or skips. "
    "Never ask for a secret in the chat.",
    RequestArguments,
    _request,
    resume=_connected,
)
