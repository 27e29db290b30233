"""What people decided: ``data/effects/reviewed.toml``."""

from pathlib import Path

import msgspec

from parley.integrations.effects.raising import EffectKind, Raise, Scalar
from parley.integrations.effects.table import DATA
from parley.integrations.index import Action, Integration

REVIEWED = DATA / "reviewed.toml"


class Correction(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What people decided about one action where the proposal is wrong or silent; "" means none."""

    effect: EffectKind | None = None
    reversible: bool | None = None
    idempotent: bool | None = None
    idempotency_key: str | None = None
    overwrites: bool = False
    raises: tuple[Raise, ...] = ()
    inverse: str | None = None
    inverse_arguments: dict[str, Scalar] = {}
    settled_by: str | None = None


class Use(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What people decided about an integration's parameters, wherever an action has one of the name.

    A name may be that of one action's parameter only: ``insert_row.values``.

    ``slashed`` may have several path segments, ``plain`` only look like a path to the source's reader,
    ``hosts`` are part of a host name, ``urls`` are URLs, ``fetched`` those that we request, and
    ``identifiers`` are put into SQL as names.
    """

    slashed: tuple[str, ...] = ()
    plain: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()
    fetched: tuple[str, ...] = ()
    identifiers: tuple[str, ...] = ()


class Reviewed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``data/effects/reviewed.toml``. A text for an action is its effect and no more."""

    parameters: dict[str, Use]
    actions: dict[str, dict[str, EffectKind | Correction]]


class ReviewError(Exception):
    """The review names something the package does not have; the message says what."""


def read_reviewed(path: Path = REVIEWED) -> Reviewed:
    """What people decided. Raises msgspec.ValidationError for a file of the wrong shape."""
    return msgspec.toml.decode(path.read_bytes(), type=Reviewed)


def action_parameters(action: Action) -> list[str]:
    """The names of what an action takes from a model."""
    return [parameter.name for parameter in action.parameters]


def check_names(integration: Integration, reviewed: Reviewed) -> None:
    """Refuse a review that speaks of what is not there: a misspelt name would silently protect nothing."""
    parameters = {action.name: set(action_parameters(action)) for action in integration.actions}
    use = reviewed.parameters.get(integration.name, Use())
    single = {f"{action}.{name}" for action, names in parameters.items() for name in names}
    unknown = {name for names in msgspec.structs.astuple(use) for name in names}.difference(
        single, *parameters.values()
    )
    for action, found in reviewed.actions.get(integration.name, {}).items():
        correction = Correction(effect=found) if isinstance(found, str) else found
        related = {action, correction.inverse or action, correction.settled_by or action}
        unknown |= related - set(parameters)
        named = {one.parameter.split(".")[0] for one in correction.raises} | {correction.idempotency_key or ""} - {""}
        unknown |= named - parameters.get(action, set())
        unknown |= set(correction.inverse_arguments) - parameters.get(correction.inverse or action, set())
    if unknown:
        names = ", ".join(sorted(unknown))
        raise ReviewError(f"reviewed.toml says of {integration.name} what it does not have: {names}")
