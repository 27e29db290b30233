"""The names that leave: attributes of spans and labels of metrics.

Those that begin with ``gen_ai`` are OpenTelemetry's GenAI semantic conventions (v1.41, in development);
those that begin with ``parley`` are ours and stay.
"""

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
AGENT = "gen_ai.agent.name"
CONVERSATION = "gen_ai.conversation.id"
REQUEST_MODEL = "gen_ai.request.model"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHED_TOKENS = "gen_ai.usage.cache_read.input_tokens"
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
SYSTEM = "gen_ai.system_instructions"
TOOL = "gen_ai.tool.name"
TOOL_TYPE = "gen_ai.tool.type"
TOOL_CALL = "gen_ai.tool.call.id"
TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_RESULT = "gen_ai.tool.call.result"
ERROR = "error.type"

ORGANIZATION = "parley.organization.id"
RUN = "parley.run.id"
TURN = "parley.turn.id"
STEP = "parley.step"
OUTCOME = "parley.outcome"
INTEGRATION = "parley.integration.name"
ACTION = "parley.action.name"
EFFECT = "parley.action.effect"
FIRST_TOKEN = "parley.time_to_first_token"  # noqa: S105 - a name

INVOKE_AGENT, CHAT, EXECUTE_TOOL = "invoke_agent", "chat", "execute_tool"
