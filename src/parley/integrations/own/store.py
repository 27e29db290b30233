"""The SQL of own integrations and their actions. Everything is asked for within one organization."""

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from sqlalchemy import Row, delete, func, insert, select, update

from parley.integrations.effects import EffectKind
from parley.integrations.own.model import (
    ActionCount,
    Changes,
    FoundAction,
    OwnAction,
    OwnIntegration,
    Review,
    changes_between,
)
from parley.storage import ReadTx, WriteTx
from parley.storage.tables.own import own_actions, own_integrations

MOST_NUMBERED = 1_000
INTEGRATION_CHARACTERS, ACTION_CHARACTERS = 100, 150

table, actions = own_integrations.c, own_actions.c


def list_integrations(tx: ReadTx, organization_id: str) -> Sequence[OwnIntegration]:
    """All of an organization's, by name."""
    rows = tx.execute(select(own_integrations).where(table.organization_id == organization_id).order_by(table.name))
    return [_integration(row) for row in rows]


def action_names(tx: ReadTx, organization_id: str) -> Mapping[str, Sequence[str]]:
    """The names of actions by integration id, in the order in which they were found."""
    rows = tx.execute(
        select(actions.integration_id, actions.name)
        .join(own_integrations, table.id == actions.integration_id)
        .where(table.organization_id == organization_id)
        .order_by(actions.integration_id, actions.position)
    )
    names: dict[str, list[str]] = {}
    for integration_id, name in rows:
        names.setdefault(integration_id, []).append(name)
    return names


def action_counts(tx: ReadTx, organization_id: str) -> Mapping[str, ActionCount]:
    """How many actions there are by integration id; an integration without any is not in it."""
    rows = tx.execute(
        select(actions.integration_id, func.count(), func.count(actions.effect))
        .join(own_integrations, table.id == actions.integration_id)
        .where(table.organization_id == organization_id)
        .group_by(actions.integration_id)
    )
    return {integration_id: ActionCount(total, total - reviewed) for integration_id, total, reviewed in rows}


def find(tx: ReadTx, organization_id: str, name: str) -> OwnIntegration | None:
    """One by its name; a text that no name can be is never asked for."""
    if not _can_be_name(name, INTEGRATION_CHARACTERS):
        return None
    row = tx.execute(
        select(own_integrations).where(table.organization_id == organization_id, table.name == name)
    ).first()
    return None if row is None else _integration(row)


def of_credential(tx: ReadTx, organization_id: str, credential_id: str) -> OwnIntegration | None:
    """The one that came with a credential."""
    row = tx.execute(
        select(own_integrations).where(table.organization_id == organization_id, table.credential_id == credential_id)
    ).first()
    return None if row is None else _integration(row)


def list_actions(tx: ReadTx, integration_id: str) -> Sequence[OwnAction]:
    """Its actions, in the order in which they were found."""
    rows = tx.execute(select(own_actions).where(actions.integration_id == integration_id).order_by(actions.position))
    return [_action(row) for row in rows]


def find_action(tx: ReadTx, integration_id: str, name: str) -> OwnAction | None:
    """One action by its name; a text that no name can be is never asked for."""
    if not _can_be_name(name, ACTION_CHARACTERS):
        return None
    row = tx.execute(select(own_actions).where(actions.integration_id == integration_id, actions.name == name)).first()
    return None if row is None else _action(row)


def free_name(tx: ReadTx, organization_id: str, wanted: str) -> str:
    """The name, or the name with the next free number. Raises LookupError past a thousand."""
    taken = set(tx.execute(select(table.name).where(table.organization_id == organization_id)).scalars())
    if wanted not in taken:
        return wanted
    for number in range(2, MOST_NUMBERED):
        if f"{wanted}_{number}" not in taken:
            return f"{wanted}_{number}"
    raise LookupError(wanted)


def add(tx: WriteTx, own: OwnIntegration) -> None:
    """Insert one without actions."""
    tx.execute(
        insert(own_integrations).values(
            id=own.id,
            organization_id=own.organization_id,
            credential_id=own.credential_id,
            kind=own.kind,
            name=own.name,
            display_name=own.display_name,
            description=own.description,
            source=own.source,
            revision=own.revision,
            created_at=own.created_at,
            refreshed_at=own.refreshed_at,
        )
    )


def remove(tx: WriteTx, organization_id: str, integration_id: str) -> bool:
    """Delete one with its actions; False when it is not there."""
    statement = delete(own_integrations).where(table.organization_id == organization_id, table.id == integration_id)
    return tx.execute(statement).rowcount == 1


def take(
    tx: WriteTx, own: OwnIntegration, found: Sequence[FoundAction], values: Mapping[str, object], now: int
) -> Changes:
    """Replace the actions by what was found now; an action that is not the same any more is unreviewed again.

    ``values`` are the columns of the integration that changed. The row's update is the lock: of two
    callers the second sees what the first wrote.
    """
    tx.execute(
        update(own_integrations)
        .where(table.id == own.id)
        .values(**values, revision=table.revision + 1, refreshed_at=now)
    )
    stored = select(actions.name, actions.fingerprint).where(actions.integration_id == own.id)
    known: dict[str, str] = {row.name: row.fingerprint for row in tx.execute(stored)}
    marks = {each.name: each.fingerprint for each in found}
    changes = changes_between(known, marks)
    new: list[dict[str, object]] = []
    for position, each in enumerate(found):
        columns: dict[str, object] = {"position": position}
        mark = marks[each.name]
        if each.name not in known:
            new.append({**columns, "integration_id": own.id, "name": each.name, **_facts(each, mark)})
            continue
        if known[each.name] != mark:
            columns |= {**_facts(each, mark), "effect": None, "reviewed_by": None, "reviewed_at": None}
        tx.execute(
            update(own_actions).where(actions.integration_id == own.id, actions.name == each.name).values(**columns)
        )
    if new:
        tx.execute(insert(own_actions), new)
    for name in changes.removed:
        tx.execute(delete(own_actions).where(actions.integration_id == own.id, actions.name == name))
    return changes


def review_each(tx: WriteTx, integration_id: str, reviews: Sequence[Review], *, user_id: str, now: int) -> bool:
    """Note what a person decided of exactly these versions of actions; False at the first that is another by now.

    The caller rolls back then: of several reviews all are noted, or none.
    """
    for each in reviews:
        statement = (
            update(own_actions)
            .where(
                actions.integration_id == integration_id,
                actions.name == each.name,
                actions.fingerprint == each.fingerprint,
            )
            .values(effect=each.effect, reviewed_by=user_id, reviewed_at=now)
        )
        if tx.execute(statement).rowcount != 1:
            return False
    return True


def review_all(tx: WriteTx, integration_id: str, effects: Mapping[str, EffectKind], *, user_id: str, now: int) -> None:
    """Note what a person decided of actions that this transaction has stored, by their names."""
    for effect in set(effects.values()):
        names = [name for name, decided in effects.items() if decided == effect]
        tx.execute(
            update(own_actions)
            .where(actions.integration_id == integration_id, actions.name.in_(names))
            .values(effect=effect, reviewed_by=user_id, reviewed_at=now)
        )


def _can_be_name(text: str, most: int) -> bool:
    return len(text) <= most and text.isascii() and text.isprintable()


def _facts(found: FoundAction, fingerprint: str) -> dict[str, object]:
    return {"description": found.description, "body": found.body, "fingerprint": fingerprint}


def _integration(row: Row[Any]) -> OwnIntegration:
    return OwnIntegration(
        id=row.id,
        organization_id=row.organization_id,
        credential_id=row.credential_id,
        kind=row.kind,
        name=row.name,
        display_name=row.display_name,
        description=row.description,
        source=row.source,
        revision=row.revision,
        created_at=row.created_at,
        refreshed_at=row.refreshed_at,
    )


def _action(row: Row[Any]) -> OwnAction:
    found = FoundAction(row.name, row.description, row.body)
    return OwnAction(found, row.fingerprint, _effect(row.effect), row.reviewed_by, row.reviewed_at)


def _effect(stored: str | None) -> EffectKind | None:
    return next((kind for kind in get_args(EffectKind.__value__) if kind == stored), None)
