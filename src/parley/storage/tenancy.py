"""Whose rows a task may touch: the second net under every query on PostgreSQL (trust T1).

Queries name their organization themselves; that is the first net. This one catches a query that forgot
to, so it must not learn the organization from the query: whoever recognizes a caller or claims a run
says once for whom the task acts, and PostgreSQL shows and takes that organization's rows only. A task
that acts for nobody sees none. Work that is the installation's own, such as claiming runs or signing
people in, goes through ``Store.across``.
"""

from typing import Any

from sqlalchemy import Connection, Row, text

from parley.storage.acting import acting

SETTING = "parley.organization"
EVERY = "*"
POLICY = "parley_organization"


def own_organization() -> str:
    """The organization this task acts for; empty when none was named."""
    return acting().organization_id


def every_organization() -> str:
    """What ``Store.across`` acts for."""
    return EVERY


_EVERYTHING = f"current_setting('{SETTING}', true) = '{EVERY}'"
# Every table that has the column, whoever added it: the owner of the tables is bound too (FORCE).
_NAMED = text(
    "SELECT quote_ident(class.relname) AS name, 'organization_id' AS child, NULL AS parent, NULL AS key "
    "FROM pg_class class "
    "JOIN pg_namespace space ON space.oid = class.relnamespace AND space.nspname = current_schema() "
    "JOIN pg_attribute attribute ON attribute.attrelid = class.oid AND attribute.attname = 'organization_id' "
    "AND NOT attribute.attisdropped "
    "WHERE class.relkind IN ('r', 'p') AND NOT (class.relrowsecurity AND class.relforcerowsecurity AND EXISTS "
    "(SELECT 1 FROM pg_policy policy WHERE policy.polrelid = class.oid AND policy.polname = :policy))"
)
# And every table whose rows each hang from a row of one that has the column: what is said in a chat, the events
# of a run. PostgreSQL holds the look-up within the policy to the policy of the table it looks in.
_HANGING = text(
    "SELECT DISTINCT ON (class.oid) quote_ident(class.relname) AS name, quote_ident(child.attname) AS child, "
    "quote_ident(parent.relname) AS parent, quote_ident(key.attname) AS key "
    "FROM pg_constraint "
    "JOIN pg_class class ON class.oid = conrelid "
    "JOIN pg_namespace space ON space.oid = class.relnamespace AND space.nspname = current_schema() "
    "JOIN pg_class parent ON parent.oid = confrelid "
    "JOIN pg_attribute own ON own.attrelid = parent.oid AND own.attname = 'organization_id' AND NOT own.attisdropped "
    "JOIN pg_attribute child ON child.attrelid = class.oid AND child.attnum = conkey[1] AND child.attnotnull "
    "JOIN pg_attribute key ON key.attrelid = parent.oid AND key.attnum = confkey[1] "
    "WHERE contype = 'f' AND cardinality(conkey) = 1 AND parent.oid <> class.oid AND NOT EXISTS "
    "(SELECT 1 FROM pg_policy policy WHERE policy.polrelid = class.oid AND policy.polname = :policy) "
    "ORDER BY class.oid, child.attnum"
)
# And the bytes of documents, which are stored piece by piece before the document's own row, so without a key to
# it: whoever acts for an organization may add some, and only whoever sees the document sees them afterwards.
_EARLY = text(
    "SELECT relname AS name, 'document_id' AS child, 'documents' AS parent, 'id' AS key FROM pg_class class "
    "JOIN pg_namespace space ON space.oid = class.relnamespace AND space.nspname = current_schema() "
    "WHERE relname = 'document_pieces' AND NOT EXISTS "
    "(SELECT 1 FROM pg_policy policy WHERE policy.polrelid = class.oid AND policy.polname = :policy)"
)


def guard_tables(connection: Connection) -> list[str]:
    """Put the policy on every table of organizations' rows that lacks it; their names. PostgreSQL only.

    Those are the tables with an ``organization_id``, those whose rows cannot be without a row of such a table,
    and the bytes of documents. Not the ones a further step away, which is the index of words: under a policy
    PostgreSQL would not search it by words any more, since ``@@`` is not leakproof.
    """
    names: list[str] = []
    for question in (_NAMED, _HANGING):
        for table in connection.execute(question, {"policy": POLICY}).all():
            _guard(connection, table.name, _rule(table))
            names.append(table.name)
    for table in connection.execute(_EARLY, {"policy": POLICY}).all():
        _guard(connection, table.name, _rule(table), check=f"current_setting('{SETTING}', true) <> ''")
        names.append(table.name)
    return names


def _rule(table: Row[Any]) -> str:
    if table.parent is None:
        own = f"{table.child} = current_setting('{SETTING}', true)"
    else:
        above = f"{table.parent} above WHERE above.{table.key} = {table.name}.{table.child}"
        own = f"EXISTS (SELECT 1 FROM {above})"  # noqa: S608 - names out of the catalogue, quoted there
    return f"{_EVERYTHING} OR {own}"


def _guard(connection: Connection, name: str, rule: str, *, check: str | None = None) -> None:
    """Rows of the table are seen where ``rule`` holds, and added where ``check`` does, else ``rule`` too."""
    connection.exec_driver_sql(f"ALTER TABLE {name} ENABLE ROW LEVEL SECURITY")
    connection.exec_driver_sql(f"ALTER TABLE {name} FORCE ROW LEVEL SECURITY")
    connection.exec_driver_sql(f"DROP POLICY IF EXISTS {POLICY} ON {name}")
    connection.exec_driver_sql(f"CREATE POLICY {POLICY} ON {name} USING ({rule}) WITH CHECK ({check or rule})")


def passes_policies(connection: Connection) -> bool:
    """Whether this role sees every row whatever the policies say. PostgreSQL only."""
    question = text("SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user")
    return bool(connection.execute(question).scalar_one())
