"""``parley verify``: whether everything in the store fits together."""

import asyncio
from collections.abc import Sequence

from parley.base.settings import Settings
from parley.billing import load_plans
from parley.billing.verify import billing_faults
from parley.chats.verify import chat_faults
from parley.cli.opening import read_rows
from parley.storage import ReadTx


def verify(settings: Settings) -> int:
    """Print every fault; the exit code: 1 when there is one.

    Only reads, at one moment of the store, so servers may go on working. Raises StoreTrouble.
    """
    plans = load_plans(settings.plans_file)

    def work(tx: ReadTx) -> Sequence[str]:
        return [*chat_faults(tx), *billing_faults(tx, plans)]

    faults = asyncio.run(read_rows(settings, work))
    for fault in faults:
        print(fault)
    if faults:
        print(f"{len(faults)} fault{'' if len(faults) == 1 else 's'} found. Keep a copy of the store and report them.")
        return 1
    print("Everything fits together.")
    return 0
