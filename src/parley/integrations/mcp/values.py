"""What an MCP tool returned, of every kind of content, as one value for the model."""

from urllib.parse import urlsplit

import msgspec

from parley.integrations.own import clean_text
from parley.turn.model import JsonObject, JsonValue

# Base64; the whole is kept for people, the model sees the cut that every long text gets.
MOST_DATA_CHARACTERS = 1_000_000
MOST_ERROR_CHARACTERS = 2_000
SHORT_CHARACTERS = 300


def tool_value(result: JsonObject) -> JsonObject:
    """A tool's result as ``{text?, structured?, content?}``; of a failed one ``{success: false, error}``.

    Text is joined; a text that only repeats the structured value is left out. Nothing is fetched:
    a link stays a link.
    """
    content = result.get("content")
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    text = "\n".join(str(block.get("text", "")) for block in blocks if block.get("type") == "text")
    structured = result.get("structuredContent")
    if result.get("isError"):
        return {"success": False, "error": clean_text(text, MOST_ERROR_CHARACTERS) or "The tool failed."}
    value: JsonObject = {}
    if text and not _repeats(text, structured):
        value["text"] = text
    if structured is not None:
        value["structured"] = structured
    others: list[JsonValue] = [_block(block) for block in blocks if block.get("type") != "text"]
    if others:
        value["content"] = others
    return value or {"text": ""}


def _repeats(text: str, structured: JsonValue) -> bool:
    """Whether the text is the structured value once more, as servers send it for old clients."""
    if structured is None:
        return False
    try:
        return msgspec.json.decode(text) in (structured, _only_member(structured))
    except msgspec.DecodeError:
        return text == _only_member(structured)


def _only_member(structured: JsonValue) -> JsonValue:
    """SDKs wrap what is no object as ``{"result": value}``."""
    return structured["result"] if isinstance(structured, dict) and list(structured) == ["result"] else structured


def _block(block: JsonObject) -> JsonObject:
    kind = block.get("type")
    if kind in ("image", "audio"):
        return {"type": kind, **_data(block.get("mimeType"), block.get("data"))}
    if kind == "resource_link":
        return {"type": "link", **_link(block)}
    if kind == "resource":
        resource = block.get("resource")
        return {"type": "resource", **_resource(resource if isinstance(resource, dict) else {})}
    return {"type": clean_text(str(kind), 40), "note": "Parley does not know this kind of content."}


def _resource(resource: JsonObject) -> JsonObject:
    told = _link(resource)
    if isinstance(resource.get("text"), str):
        return {**told, "text": resource["text"]}
    return {**told, **_data(resource.get("mimeType"), resource.get("blob"))}


def _link(block: JsonObject) -> JsonObject:
    told: JsonObject = {"uri": _uri(str(block.get("uri", "")))}
    for name in ("name", "title", "description", "mimeType"):
        if isinstance(block.get(name), str):
            told["mime_type" if name == "mimeType" else name] = clean_text(str(block[name]), SHORT_CHARACTERS)
    if isinstance(block.get("size"), int):
        told["size_bytes"] = block["size"]
    return told


def _uri(text: str) -> str:
    """The address as it is, unless it could run something where it is shown."""
    scheme = urlsplit(text).scheme if text.isprintable() else ""
    return clean_text(text, 2_000) if scheme not in ("javascript", "data", "vbscript") else f"{scheme}:…"


def _data(mime_type: JsonValue, data: JsonValue) -> JsonObject:
    encoded = data if isinstance(data, str) else ""
    told: JsonObject = {"mime_type": clean_text(str(mime_type or ""), 100), "size_bytes": len(encoded) * 3 // 4}
    if len(encoded) <= MOST_DATA_CHARACTERS:
        return {**told, "data": encoded}
    return {**told, "note": "The bytes themselves are left out: they are too large for a conversation."}
