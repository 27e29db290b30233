"""Who is asked first: every action under every policy, and arguments that make an action graver.

``effects_policies.txt`` holds the decision for each action. After a change that is meant, write it
again with ``python tests/integrations/test_effects_policy.py`` and read the difference.
"""

from pathlib import Path

import pytest

from parley.base.settings import ApprovalPolicy
from parley.integrations.effects import Effect, Reason, all_effects, asks_first, effect_of, raised_effect
from parley.integrations.effects.policy import CATASTROPHIC, DELETING_PATTERNS, QUERY_PATTERNS
from parley.integrations.effects.raising import GRAVITY, Raise
from parley.turn.model import JsonObject, JsonValue

SNAPSHOT = Path(__file__).parent / "effects_policies.txt"
POLICIES: tuple[ApprovalPolicy, ...] = ("documented", "catalog", "strict")
EFFECTS = all_effects()
DELETES = "It deletes, removes or cancels something."
RAISES = [(name, number) for name, effect in EFFECTS.items() for number in range(len(effect.raises))]


def asked(policy: ApprovalPolicy, name: str, arguments: JsonObject | None = None) -> Reason | None:
    integration, _, action = name.partition(".")
    return asks_first(policy, integration, action, arguments or {}, effect_of(integration, action))


def decisions() -> list[str]:
    """``integration.action effect``, and the policies that ask for it without arguments, by their first letters."""
    return [
        f"{name} {effect.effect} {''.join(policy[0] if asked(policy, name) else '-' for policy in POLICIES)}"
        for name, effect in EFFECTS.items()
    ]


# ── every action ────────────────────────────────────────────────────────────────────────────────


def test_the_decision_for_every_action_is_the_one_on_record() -> None:
    recorded = SNAPSHOT.read_text().splitlines()
    made = decisions()
    differing = [f"{line} (recorded)" for line in recorded if line not in set(made)]
    differing += [line for line in made if line not in set(recorded)]
    assert differing == []
    assert made == recorded


@pytest.mark.parametrize(("policy", "count"), [("documented", 161), ("catalog", 375), ("strict", 998)])
def test_so_many_actions_ask(policy: ApprovalPolicy, count: int) -> None:
    assert sum(asked(policy, name) is not None for name in EFFECTS) == count


def test_documented_goes_by_the_seeds_patterns_to_the_letter() -> None:
    patterns = {"delete_", "_delete", "drop_", "truncate", "purge", "destroy", "wipe"}
    patterns |= {"execute_query", "execute_statement", "execute_raw_query", "raw_query"}
    assert patterns == {*DELETING_PATTERNS, *QUERY_PATTERNS}
    for name in EFFECTS:
        matches = any(pattern in name.partition(".")[2] for pattern in patterns)
        assert (asked("documented", name) is not None) == matches, name


def test_a_policy_asks_for_all_that_a_looser_one_asks_for() -> None:
    for name in EFFECTS:
        answers = [asked(policy, name) is not None for policy in POLICIES]
        assert answers == sorted(answers), name


def test_guarded_asks_here_as_catalog_does() -> None:
    for name in EFFECTS:
        assert asked("guarded", name) == asked("catalog", name), name


def test_strict_lets_reads_pass_and_nothing_else() -> None:
    passing = {EFFECTS[name].effect for name in EFFECTS if asked("strict", name) is None}
    assert passing == {"read"}
    assert all(asked("strict", name) is None for name, effect in EFFECTS.items() if effect.effect == "read")


@pytest.mark.parametrize(
    "name",
    [
        "slack.post_message",
        "gmail.send_message",
        "github.create_issue",
        "linear.create_issue",
        "google_calendar.create_event",
        "hubspot.update_contact",
        "google_docs.replace_text",
        "notion.create_page",
        "jira.transition_issue",
    ],
)
def test_ordinary_creates_updates_and_sends_run_at_once_by_default(name: str) -> None:
    assert asked("catalog", name) is None


@pytest.mark.parametrize(
    "name",
    [
        "reddit.delete",
        "stripe.cancel_subscription",
        "coinbase.withdraw_funds",
        "snowflake.execute_sql_query",
        "daytona.execute_command",
        "okta.update_user",
        "vercel.create_dns_record",
        "agentphone.release_number",
    ],
)
def test_what_its_name_hides_is_asked_for_by_default(name: str) -> None:
    assert asked("documented", name) is None
    assert asked("catalog", name) is not None


def test_an_unknown_action_is_asked_for_but_under_documented() -> None:
    assert asked("documented", "mcp_server.get_weather") is None
    for policy in ("catalog", "guarded", "strict"):
        reason = asked(policy, "mcp_server.get_weather")
        assert reason is not None
        assert "mcp_server.get_weather" in reason.sentence


# ── what the card says ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("policy", "name", "arguments", "sentence"),
    [
        (
            "documented",
            "github.delete_repository",
            {},
            f"{DELETES} This cannot be taken back. Actions with this name always ask first.",
        ),
        (
            "documented",
            "mysql.execute_raw_query",
            {},
            "It runs code, a command or a query as it is written. Actions with this name always ask first.",
        ),
        (
            "catalog",
            "stripe.create_charge",
            {},
            "It moves money, changes what is owed, or binds you legally. This cannot be taken back.",
        ),
        ("catalog", "clickup.remove_tag_from_task", {}, DELETES),
        ("catalog", "pipedrive.update_deal", {"status": "deleted"}, "It would delete the deal."),
        (
            "strict",
            "slack.post_message",
            {},
            "It sends something out of your organization. This cannot be taken back. Here, every change asks first.",
        ),
        ("strict", "github.create_issue", {}, "It changes something. Here, every change asks first."),
    ],
)
def test_the_card_says_why_in_plain_words(
    policy: ApprovalPolicy, name: str, arguments: JsonObject, sentence: str
) -> None:
    assert asked(policy, name, arguments) == Reason(sentence)


def test_every_sentence_is_whole() -> None:
    for name in EFFECTS:
        reason = asked("strict", name)
        assert reason is None or (reason.sentence[0].isupper() and reason.sentence.endswith("."))


# ── arguments that make it graver ───────────────────────────────────────────────────────────────


def placed(path: str, value: JsonValue) -> JsonObject:
    """Arguments in which the path leads to the value."""
    for step in reversed(path.split(".")):
        value = {"any" if step == "*" else step: value}
    assert isinstance(value, dict)
    return value


def setting_off(one: Raise) -> JsonObject:
    if one.empty:
        return placed(one.parameter, None)
    return placed(one.parameter, one.among[0] if one.among else "something")


@pytest.mark.parametrize(("name", "number"), RAISES)
def test_each_reviewed_predicate_makes_its_action_graver(name: str, number: int) -> None:
    effect = EFFECTS[name]
    one = effect.raises[number]
    raised = raised_effect(effect, setting_off(one))
    assert GRAVITY.index(raised.effect) >= GRAVITY.index(one.to)
    assert (raised.reversible, raised.idempotent) == (False, False)
    if one.to in CATASTROPHIC:
        assert asked("catalog", name, setting_off(one)) is not None
    assert asked("strict", name, setting_off(one)) is not None


@pytest.mark.parametrize("name", sorted({name for name, _ in RAISES}))
def test_without_the_telling_argument_an_action_stays_what_it_is(name: str) -> None:
    effect = EFFECTS[name]
    harmless: JsonObject = {}
    for one in effect.raises:
        if one.empty:
            harmless |= placed(one.parameter, "something")
        elif one.unless:
            harmless |= placed(one.parameter, one.unless[0])
    assert raised_effect(effect, harmless) == effect


@pytest.mark.parametrize("value", ["deleted", "DELETED", " Deleted "])
def test_a_text_is_compared_without_case_and_blanks(value: str) -> None:
    assert asked("catalog", "pipedrive.update_deal", {"status": value}) is not None


@pytest.mark.parametrize("value", [True, "true", "True", "yes", "on", "1", 1, 1.0, "t", "Y"])
def test_a_switch_counts_however_it_is_written(value: JsonValue) -> None:
    assert asked("catalog", "notion.update_page", {"archived": value}) is not None


@pytest.mark.parametrize("value", [False, "false", "no", 0, None, ""])
def test_a_switch_that_is_off_changes_nothing(value: JsonValue) -> None:
    assert asked("catalog", "notion.update_page", {"archived": value}) is None


@pytest.mark.parametrize("method", ["get", "HEAD", None, ""])
def test_a_look_at_a_page_stays_a_read(method: JsonValue) -> None:
    assert asked("strict", "scrape_do.scrape", {"method": method}) is None


def test_a_request_that_is_no_look_is_told_apart() -> None:
    scrape = EFFECTS["scrape_do.scrape"]
    assert raised_effect(scrape, {"method": "POST"}).effect == "egress"
    assert raised_effect(scrape, {"method": "delete"}).effect == "destructive"


@pytest.mark.parametrize(
    "attributes",
    [{"plan": {"value": None}}, {"plan": {"value": ""}}, '{"plan": {"value": null}}', {"a": {"value": "x"}, "b": {}}],
)
def test_a_predicate_reaches_into_objects_and_into_json_texts(attributes: JsonValue) -> None:
    effect = EFFECTS["revenuecat.update_subscriber_attributes"]
    assert raised_effect(effect, {"attributes": attributes}).effect == "destructive"
    assert raised_effect(effect, {"attributes": {"plan": {"value": "pro"}}}).effect == "write"


def test_members_of_a_list_are_looked_at_one_by_one() -> None:
    one = Raise("items.*.operation", "destructive", "delete an item", among=("delete",))
    effect = Effect("write", raises=(one,), schema="0")
    assert raised_effect(effect, {"items": [{"operation": "create"}, {"operation": "delete"}]}).effect == "destructive"
    assert raised_effect(effect, {"items": [{"operation": "create"}]}).effect == "write"
    assert raised_effect(effect, {"items": "no list"}).effect == "write"


def test_a_raise_never_makes_an_effect_milder() -> None:
    effect = Effect("money", raises=(Raise("to", "egress", "mail it"),), schema="0")
    assert raised_effect(effect, {"to": "someone"}).effect == "money"


def test_a_repeat_is_safe_only_with_the_key_that_the_provider_counts_by() -> None:
    effect = EFFECTS["incidentio.incidents_create"]
    assert raised_effect(effect, {"idempotency_key": "once"}).idempotent
    assert not raised_effect(effect, {}).idempotent
    assert not raised_effect(effect, {"idempotency_key": ""}).idempotent


if __name__ == "__main__":
    SNAPSHOT.write_text("".join(f"{line}\n" for line in decisions()))
