"""Texts that a stranger wrote for a model to read: what cannot be seen is taken out (trust §2.3).

Instructions can hide in characters that no person sees: tags, zero-width and bidirectional marks,
variation selectors, private use.
"""

import re
import unicodedata

# Controls, formats, surrogates, private use, unassigned.
HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
VARIATION_SELECTORS = frozenset({*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)})
# Letters by category that are drawn as nothing.
BLANK_LETTERS = frozenset({0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0})
KEPT = frozenset("\n\t")
NO_NAME = re.compile(r"[^a-z0-9]+")


def is_clean(text: str) -> bool:
    """Whether a name holds nothing that cannot be seen."""
    if text.isascii():
        return text.isprintable()
    return not any(_is_hidden(character) for character in text) and "\n" not in text and "\t" not in text


def clean_text(text: str, most: int) -> str:
    """What a person would see of a text, at most ``most`` characters of it."""
    if len(text) > 4 * most:
        text = text[: 4 * most]
    is_plain = text.isascii() and text.replace("\n", "").replace("\t", "").isprintable()
    seen = (text if is_plain else "".join(character for character in text if not _is_hidden(character))).strip()
    return seen if len(seen) <= most else f"{seen[: most - 1]}…"


def plain_name(text: str, most: int) -> str:
    """The text as a name: a-z, 0-9 and '_' only, at most ``most`` characters; empty where nothing of it is left."""
    return NO_NAME.sub("_", text.lower()).strip("_")[:most].strip("_")


def _is_hidden(character: str) -> bool:
    if character in KEPT:
        return False
    point = ord(character)
    return unicodedata.category(character) in HIDDEN or point in VARIATION_SELECTORS or point in BLANK_LETTERS
