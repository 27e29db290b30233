"""A first guess at what an action does, from its name and the HTTP methods it uses. People correct it.

The corrections are ``data/effects/reviewed.toml``; a guess is only ever a proposal to them.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from parley.integrations.effects.policy import has_documented_pattern
from parley.integrations.effects.raising import EffectKind
from parley.integrations.index import Action


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


READING = _words(
    "answer autocomplete check classify count crawl describe download enrich export extract fetch find get "
    "list lookup look map poll query read retrieve scan scrape search select show suggest validate verify "
    "view"
)
SENDING = _words("call email forward invite post publish reply send share")
# Same call, same state: a rescue may repeat it. (Whether a repeat tells people a second time is for the review.)
SETTING = _words(
    "archive assign attach close complete edit hide lock mark move patch pin put rename save set subscribe "
    "transition unhide unlock unsave unsubscribe update upsert"
)
# Takes nothing away that was there before: what it makes can be removed, what it sets can be set back.
ADDITIVE = _words(
    "add append archive assign attach close complete create duplicate hide insert lock mark move new pin "
    "record register rename save schedule subscribe transition unhide unlock unsave"
)
DOING = _words(
    "cancel delete detach put refresh remove replace rerequest run simulate submit suppress sync trigger upload"
)
VERBS = READING | SENDING | SETTING | ADDITIVE | DOING
# Putting a member into a set twice leaves it there once.
MEMBERS = _words("attendees contact contacts follower followers guests label labels member members tag tags")
SMALL_WORDS = _words("a all an by details for from id in info of the to with")
URL_WORDS = _words("callback uri url urls webhook")
UNDOING = {
    "add": ("remove", "delete"),
    "archive": ("unarchive",),
    "attach": ("detach",),
    "detach": ("attach",),
    "create": ("delete", "remove", "archive", "cancel"),
    "hide": ("unhide",),
    "insert": ("delete",),
    "lock": ("unlock",),
    "new": ("delete",),
    "remove": ("add",),
    "save": ("unsave",),
    "unhide": ("hide",),
    "unlock": ("lock",),
    "unsave": ("save",),
}
MAKING = _words("add append create duplicate insert new post record register schedule send submit upload")
LOOKING = ("list", "search", "get", "retrieve", "find", "read", "show", "view", "query", "select")


@dataclass(frozen=True, slots=True)
class Proposal:
    """What an action probably does."""

    effect: EffectKind
    reversible: bool = False
    idempotent: bool = False


def propose(name: str, methods: Collection[str]) -> Proposal:
    """The guess for one action."""
    words, verb = name.split("_"), verb_of(name)
    if has_documented_pattern(name):
        return Proposal("exec" if {"query", "statement"}.intersection(words) else "destructive")
    only_gets = bool(methods) and not set(methods) - {"GET", "HEAD"}
    if verb in READING or (only_gets and verb not in VERBS - SENDING):
        return Proposal("read", reversible=True, idempotent=True)
    if verb in SENDING:
        return Proposal("egress")
    repeatable = verb in SETTING or (verb == "add" and bool(MEMBERS.intersection(words)))
    return Proposal("write", reversible=verb in ADDITIVE, idempotent=repeatable)


def verb_of(name: str) -> str:
    """The first word where that is a verb, else the last (``incidents_create``), else any, else the first."""
    words = name.split("_")
    return next((word for word in (words[0], words[-1], *words) if word in VERBS), words[0])


def inverse_of(name: str, siblings: Iterable[str]) -> str | None:
    """The action of the same integration that takes back what this one did."""
    verb, things, there = verb_of(name), things_of(name), sorted(siblings)
    for undoing in UNDOING.get(verb, ()):
        for other in there:
            if verb_of(other) == undoing and things_of(other) == things:
                return other
    return None


def settling(name: str, reads: Sequence[str]) -> str | None:
    """The read that shows whether this one happened: of the same things, all of them where something was made."""
    things, verb = things_of(name), verb_of(name)
    many = verb in MAKING | SENDING
    best: tuple[int, bool, int, str] | None = None
    for other in reads:
        about, looking = things_of(other), verb_of(other)
        if looking not in LOOKING or not about or not about <= things:
            continue
        plural = looking in ("list", "search") or other.endswith("s")
        rated = (-len(about), plural != many, LOOKING.index(looking), other)
        best = rated if best is None or rated < best else best
    return best[3] if best else None


def things_of(name: str) -> frozenset[str]:
    """What an action is about: its words but the verb and small ones, in the singular."""
    words = name.split("_")
    words.remove(verb_of(name))
    return frozenset(_singular(word) for word in words if word not in SMALL_WORDS)


def _singular(word: str) -> str:
    if word.endswith("ies"):
        return f"{word[:-3]}y"
    if word.endswith(("ses", "xes", "ches")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def url_parameters(action: Action) -> list[str]:
    """The text parameters whose names say that they are URLs."""
    return [
        parameter.name
        for parameter in action.parameters
        if parameter.type in ("string", "array") and parameter.name.split("_")[-1] in URL_WORDS
    ]
