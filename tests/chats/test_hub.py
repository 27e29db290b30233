"""Who is sent to the store when a run leaves this process, and who has everything already."""

import pytest

from parley.runs.hub import QUEUE_ITEMS, Hub, Row


def event(seq: int, kind: str) -> Row:
    return Row(seq, seq, 1, kind, "{}")


@pytest.mark.parametrize("end", ["done", "cancelled"])
def test_a_reader_that_has_the_end_is_not_sent_to_the_store(end: str) -> None:
    hub = Hub()
    hub.own("run", 1)
    reader = hub.subscribe("run")
    rows = [event(1, "guidance"), event(2, end)]
    hub.publish("run", rows)
    hub.disown("run", 1)
    assert not reader.stale
    assert reader.take() == rows


@pytest.mark.parametrize("last", ["interrupted", "guidance"])
def test_a_reader_without_the_end_looks_into_the_store(last: str) -> None:
    hub = Hub()
    hub.own("run", 1)
    reader = hub.subscribe("run")
    hub.publish("run", [event(1, last)])
    hub.disown("run", 1)
    assert reader.stale


def test_a_reader_that_fell_behind_the_end_looks_into_the_store() -> None:
    hub = Hub()
    hub.own("run", 1)
    reader = hub.subscribe("run")
    hub.publish("run", [event(seq, "guidance") for seq in range(1, QUEUE_ITEMS + 1)])
    hub.publish("run", [event(QUEUE_ITEMS + 1, "done")])
    hub.disown("run", 1)
    assert reader.stale
