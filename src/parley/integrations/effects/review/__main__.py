"""``python -m parley.integrations.effects.review`` makes the effect table again.

Every action of the installed package is run offline and its source read; what that and its name
suggest is corrected by ``data/effects/reviewed.toml`` and written to ``data/effects/table.json``. It
takes some minutes. What is new or changed is printed: read it before committing it.
"""

import argparse
import asyncio
import logging
import sys
import warnings
from collections.abc import Iterable

import msgspec

from parley.integrations.effects.review.corrections import read_reviewed
from parley.integrations.effects.review.make import lines_of, make
from parley.integrations.effects.table import TABLE, Effect
from parley.integrations.index import SHIPPED, Integration, read_index, whole


def main() -> None:
    """Make the table, or with ``--check`` say what would change; whole, or of the integrations named."""
    options = argparse.ArgumentParser(prog="python -m parley.integrations.effects.review", description=__doc__)
    options.add_argument("--check", action="store_true", help="change nothing; exit with 1 if something would change")
    options.add_argument("names", nargs="*", help="only these integrations")
    chosen = options.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    before: dict[str, Effect] = (
        msgspec.json.decode(TABLE.read_bytes(), type=dict[str, Effect]) if TABLE.exists() else {}
    )
    catalog = [whole(summary) for summary in read_index(SHIPPED).integrations]
    wanted = [one for one in catalog if not chosen.names or one.name in chosen.names]
    made = asyncio.run(make(wanted, read_reviewed()))
    rows = {name: made.get(name) or before[name] for name in _names(catalog) if name in made or name in before}
    changed = [name for name in {**before, **rows} if before.get(name) != rows.get(name)]
    for name in changed:
        sys.stdout.write(f"{name}: {msgspec.json.encode(rows.get(name)).decode()}\n")
    sys.stdout.write(f"{len(rows)} actions, {len(changed)} new or changed\n")
    if chosen.check:
        sys.exit(1 if changed else 0)
    TABLE.write_bytes(lines_of(rows))


def _names(catalog: Iterable[Integration]) -> list[str]:
    return [f"{integration.name}.{action.name}" for integration in catalog for action in integration.actions]


if __name__ == "__main__":
    main()
