"""Write src/parley/llm/models.json anew from two well-kept packages. Not needed to run Parley.

    uv run --no-project --with litellm==VERSION --with genai-prices==VERSION requirements/build_models.py

litellm's table gives limits, prices, abilities and retirement dates; genai-prices gives the names
people know. Prices become integers here: micro-credits per million tokens (1 credit is $0.01).
"""

import json
import re
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from importlib.metadata import distribution, version
from pathlib import Path
from typing import Any

from genai_prices.data import providers as named_providers

TARGET = Path(__file__).parent.parent / "src/parley/llm/models.json"
MICRO_CREDITS_PER_DOLLAR = 100_000_000
SOON = timedelta(days=30)

# wire name → (litellm's provider, genai-prices' provider)
SOURCES = {
    "openai": ("openai", "openai"),
    "anthropic": ("anthropic", "anthropic"),
    "gemini": ("gemini", "google"),
    "xai": ("xai", "x-ai"),
    "groq": ("groq", "groq"),
    "mistral": ("mistral", "mistral"),
    "deepseek": ("deepseek", "deepseek"),
}
# OpenRouter's prefix → the provider whose figures hold for it too
ROUTED = {
    "anthropic": "anthropic",
    "deepseek": "deepseek",
    "google": "gemini",
    "mistralai": "mistral",
    "openai": "openai",
    "x-ai": "xai",
}
# Not for conversation with tools: special purposes, experiments, second names.
UNWANTED = re.compile(
    r"^ft:|audio|search|realtime|streaming|robotics|fim|learnlm|-exp\b|-exp-|customtools|safeguard|cyber|rosalind"
    r"|daybreak|-law\b|voxtral|leanstral|gemma-2|-vibe-|mistral-code|experimental|-beta|non-reasoning|reasoning"
    r"|-gv2|^deepseek-(coder|r1|v3)|^chat-latest|grok-code|-0309|mistral-small$|mistral-medium-3$"
)
DATED = re.compile(r"-(\d{4}-\d{2}-\d{2}|\d{8}|\d{4})$")


def main() -> None:
    """Read both packages and write the file, newest models of each provider first."""
    table = json.loads(_litellm_table())
    today = datetime.now(UTC).date()
    catalogue = {name: _models(table, name, today + SOON) for name in SOURCES}
    catalogue["openrouter"] = _routed(catalogue)
    document = {
        "sources": [{"package": package, "version": version(package)} for package in ("litellm", "genai-prices")],
        "price_unit": "micro-credits per million tokens; 1 credit is $0.01",
        "models": catalogue,
    }
    TARGET.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(f"{sum(map(len, catalogue.values()))} models\n")


def _litellm_table() -> str:
    wanted = "model_prices_and_context_window_backup.json"
    for file in distribution("litellm").files or ():
        if file.name == wanted:
            return file.read_text()
    raise SystemExit(f"litellm no longer ships {wanted}")


def _models(table: dict[str, dict[str, Any]], name: str, cutoff: Any) -> list[dict[str, Any]]:
    litellm_name, names_from = SOURCES[name]
    found: dict[str, dict[str, Any]] = {}
    for key, row in table.items():
        model_id = key.removeprefix(f"{litellm_name}/")
        if row.get("litellm_provider") == litellm_name and _wanted(model_id, row, cutoff):
            found[model_id] = row
    for model_id in list(found):
        undated = DATED.sub("", model_id)
        if undated != model_id and (undated in found or f"{undated}-latest" in found):
            del found[model_id]
    display = next(provider for provider in named_providers if provider.id == names_from)
    models = [_model(model_id, row, display) for model_id, row in found.items()]
    return sorted(models, key=lambda model: _rank(model["id"]))


def _wanted(model_id: str, row: dict[str, Any], cutoff: Any) -> bool:
    endpoints = row.get("supported_endpoints") or ["/v1/chat/completions"]
    retires = row.get("deprecation_date")
    return bool(
        row.get("mode") == "chat"
        and row.get("supports_function_calling")
        and "/v1/chat/completions" in endpoints
        and row.get("max_input_tokens")
        and row.get("input_cost_per_token") is not None
        and not UNWANTED.search(model_id)
        and not (retires and datetime.fromisoformat(retires).date() < cutoff)
    )


def _model(model_id: str, row: dict[str, Any], display: Any) -> dict[str, Any]:
    tiers = [re.fullmatch(r"input_cost_per_token_above_(\d+)k_tokens", key) for key in row]
    long_from = next((int(tier[1]) * 1000 for tier in tiers if tier), 0)
    prices = _prices(row, "")
    if long_from and prices["input"]:
        prices["long"] = {"above_tokens": long_from, **_prices(row, f"_above_{long_from // 1000}k_tokens")}
    return {
        "id": model_id,
        "display_name": _display_name(model_id, display),
        "context_tokens": int(row["max_input_tokens"]),
        "max_output_tokens": int(row["max_output_tokens"]) if row.get("max_output_tokens") else None,
        "supports_vision": bool(row.get("supports_vision")),
        "retires": row.get("deprecation_date"),
        **_thinking(row),
        "prices": prices,
    }


def _thinking(row: dict[str, Any]) -> dict[str, str]:
    """How thinking is asked for; only Anthropic's format has a parameter for it that Parley sends."""
    if row.get("litellm_provider") != "anthropic" or not row.get("supports_reasoning"):
        return {}
    return {"thinking": "adaptive" if row.get("supports_adaptive_thinking") else "budget"}


def _prices(row: dict[str, Any], suffix: str) -> dict[str, Any]:
    fresh = _price(row.get(f"input_cost_per_token{suffix}"))
    cached = row.get(f"cache_read_input_token_cost{suffix}")
    return {
        "input": fresh,
        "cached_input": fresh if cached is None else _price(cached),
        "output": _price(row.get(f"output_cost_per_token{suffix}", row.get("output_cost_per_token"))),
    }


def _price(dollars_per_token: float | None) -> int:
    return int(Decimal(str(dollars_per_token or 0)) * 1_000_000 * MICRO_CREDITS_PER_DOLLAR)


def _display_name(model_id: str, display: Any) -> str:
    known = display.find_model(model_id)
    name = known.name if known and known.name and known.id == model_id else ""
    if not name:
        words = [word for word in re.split(r"[-/]", DATED.sub("", model_id)) if word]
        name = " ".join(word if word[0].isdigit() else word.capitalize() for word in words)
        name = re.sub(r"(?<=\d) (?=\d\b)", ".", name).replace("Glm", "GLM")
    return re.sub(r"^gpt[ -]", "GPT-", name, flags=re.IGNORECASE)


def _rank(model_id: str) -> tuple[Any, ...]:
    """Higher versions first, whatever the family; then the shorter name."""
    numbers = [int(part) for part in re.findall(r"(?<![\da-z])\d{1,2}(?![\db])", DATED.sub("", model_id))]
    return (*(-number for number in [*numbers, 0, 0][:2]), len(model_id), model_id)


def _routed(catalogue: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    def plain(model_id: str) -> str:
        return model_id.replace(".", "-")

    router = next(provider for provider in named_providers if provider.id == "openrouter")
    routed: list[dict[str, Any]] = []
    for known in router.models:
        prefix, _, tail = known.id.partition("/")
        direct = catalogue.get(ROUTED.get(prefix, ""), [])
        match = next((model for model in direct if plain(model["id"]) == plain(tail)), None)
        if match:
            routed.append({name: value for name, value in match.items() if name != "thinking"} | {"id": known.id})
    return sorted(routed, key=lambda model: _rank(model["id"]))


if __name__ == "__main__":
    main()
