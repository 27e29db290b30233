"""Arguments that would turn one action into another are never passed on (trust §2.5)."""

from urllib.parse import quote

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.integrations.effects import Effect, all_effects, effect_of, refuse_dangerous
from parley.turn.model import JsonObject, JsonValue

EFFECTS = all_effects()
SEGMENT = Effect("read", paths=("id",), schema="0")
PATH = Effect("read", slashed_paths=("id",), schema="0")
ESCAPED = Effect("read", escaped_paths=("id",), schema="0")
ANY_PATH = [SEGMENT, PATH, ESCAPED]


def refused(effect: Effect, value: JsonValue) -> bool:
    return refuse_dangerous({"id": value}, effect) is not None


# ── the probes that reached another endpoint ────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("stripe.cancel_subscription", {"id": "../customers/cus_VICTIM"}),
        ("microsoft_entra_id.remove_member_from_group", {"group_id": "../users/ceo@corp.example?x=", "user_id": "m"}),
        ("vercel.remove_project_domain", {"project_id": "../projects/prj_1?a=", "domain": "x.example"}),
        ("github.get_repository", {"owner": "..", "repo": "user/emails"}),
        ("github.get_repository", {"owner": "octo", "repo": "user/emails"}),
        ("github.get_file_content", {"owner": "o", "repo": "r", "path": "../../../user/emails"}),
        ("azure_storage.delete_blob", {"container_name": "c", "blob_name": "../other/blob"}),
        ("reddit.get_user", {"username": ".."}),
        ("microsoft_outlook.get_message", {"message_id": "m", "user_id": "a%2F..%2Fb"}),
        ("twilio.get_transcripts", {"transcript_sids": ["ok", "../Services"]}),
    ],
)
def test_a_way_to_another_endpoint_is_refused(name: str, arguments: JsonObject) -> None:
    integration, _, action = name.partition(".")
    sentence = refuse_dangerous(arguments, effect_of(integration, action))
    assert sentence is not None
    assert any(parameter in sentence for parameter in arguments)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("github.get_file_content", {"owner": "octo-org", "repo": "hello.world", "path": "docs/a b/read.me.md"}),
        ("github.create_branch", {"owner": "o", "repo": "r", "branch_name": "feature/x", "from_branch": "main"}),
        ("github.get_issue", {"owner": "o", "repo": "r", "issue_number": 1}),
        ("npm.get_package_info", {"package_name": "@scope/name"}),
        ("google_contacts.get_contact", {"resource_name": "people/c123", "fields": ["names"]}),
        ("google_sheets.read_rows", {"spreadsheet_id": "1aB_c-D", "sheet_name": "Q1/Q2? #3", "range": "A1:B2"}),
        ("google_search_console.retrieve_site_performance_data", {"site_url": "https://example.com/"}),
        ("wikipedia.summary", {"page_title": "...And Justice for All (AC/DC?)"}),
        ("microsoft_teams.list_messages_in_chat", {"chat_id": "19:ab_cd@thread.v2"}),
        ("microsoft_outlook.get_message", {"message_id": "AAMkAD=", "user_id": "ada@example.com"}),
        ("twilio.phone_number_lookup", {"phone_number": "+14155550100"}),
        ("airtable.list_records", {"base_id": "app1", "table_name": "Größe 100%"}),
        ("slack.post_message", {"channel_id": "C1", "text": "see ../../etc? #1"}),
        ("ses.send_email", {"region": "eu-central-1"}),
        ("postgresql.find_row", {"table": "orders_2024", "schema_name": "public", "column": "id", "value": "x'; --"}),
    ],
)
def test_ordinary_values_pass(name: str, arguments: JsonObject) -> None:
    integration, _, action = name.partition(".")
    assert refuse_dangerous(arguments, effect_of(integration, action)) is None


def test_an_ordinary_value_passes_for_every_path_parameter_of_the_catalog() -> None:
    for name, effect in EFFECTS.items():
        arguments: JsonObject = dict.fromkeys(effect.paths + effect.slashed_paths + effect.escaped_paths, "id-1_a.B~2")
        assert refuse_dangerous(arguments, effect) is None, name


def test_a_step_up_is_refused_for_every_path_parameter_of_the_catalog() -> None:
    for name, effect in EFFECTS.items():
        for parameter in effect.paths + effect.slashed_paths + effect.escaped_paths:
            for value in ("..", "../x", "x/../../y", "%2e%2e", "%2e%2e%2fx", "..%2fx", "%252e%252e/x", "..\\x"):
                assert refuse_dangerous({parameter: value}, effect) is not None, f"{name} {parameter} {value}"


# ── vectors ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("effect", ANY_PATH)
@pytest.mark.parametrize(
    "value",
    [
        *("..", ".", "../x", "x/..", "./x", "x/./y", " .. ", "/..", "../"),
        *("%2e%2e", "%2E%2e/", ".%2e", "%2e.", "%252e%252e", "%25252e%25252e", "%2e", "%u002e%u002e/x"),
        *("..\\x", "x\\y", "%5c", "%255c", "..%5cx", "..%c0%afx", "%c0%ae%c0%ae/", "%ff"),
        *("．．/x", "．．", "x\ny", "x\ty", "\x00", "x%00", "x%0a", "x%2500", "x\u2028y", "x\x7f", "\ud800"),
    ],
)
def test_every_spelling_of_a_step_up_or_a_control_character_is_refused(effect: Effect, value: str) -> None:
    assert refused(effect, value)


@pytest.mark.parametrize("effect", [SEGMENT, PATH])
@pytest.mark.parametrize(
    "value", ["x?y", "x#y", "x%3fy", "x%3Fy", "x%23y", "x%253f", "a..b", "?", "#", "x;..;/y", "v1..v2", "x%u003fy"]
)
def test_a_query_or_fragment_is_refused_where_the_action_escapes_nothing(effect: Effect, value: str) -> None:
    assert refused(effect, value)


@pytest.mark.parametrize("value", ["a/b", "/", "a%2fb", "a%2Fb", "a%252fb", "", " ", "a%u002fb"])
def test_a_single_segment_has_no_slash_and_is_not_blank(value: str) -> None:
    assert refused(SEGMENT, value)


@pytest.mark.parametrize("value", ["a/b", "a/b/c.txt", "/a", "a//b", "", "a%20b"])
def test_a_path_may_have_slashes(value: str) -> None:
    assert not refused(PATH, value)


@pytest.mark.parametrize("value", ["a/b", "a?b#c", "100%", "...x", "a..b", "https://example.com/a?b=c"])
def test_what_an_action_escapes_by_itself_may_hold_separators(value: str) -> None:
    assert not refused(ESCAPED, value)


@pytest.mark.parametrize(
    "value",
    [["ok", "../x"], [["ok", ["../x"]]], {"a": "../x"}, {"../x": "a"}, {"a": [{"b": "..%2fx"}]}, [1, None, True, ".."]],
)
def test_lists_and_objects_are_looked_through(value: JsonValue) -> None:
    assert all(refused(effect, value) for effect in ANY_PATH)


@pytest.mark.parametrize("value", [None, 7, 1.5, True, [], {}, [1, 2]])
def test_what_holds_no_text_passes(value: JsonValue) -> None:
    assert not any(refused(effect, value) for effect in ANY_PATH)


def test_a_value_that_never_stops_decoding_is_refused() -> None:
    deep = quote("%", safe="")
    for _ in range(12):
        deep = quote(deep, safe="")
    assert all(refused(effect, deep) for effect in ANY_PATH)


def test_the_sentence_says_what_to_do() -> None:
    sentence = refuse_dangerous({"id": "../x"}, SEGMENT)
    assert sentence == (
        "The parameter id is one part of the request's address: it cannot be blank, nor hold '..', '/', '?', '#', "
        "a backslash or control characters, encoded or not. Send the plain value."
    )


# ── for any text ────────────────────────────────────────────────────────────────────────────────


def encoded(text: str, rounds: list[bool]) -> str:
    """The text with every character percent-encoded, then encoded again as often as there are rounds."""
    for upper in rounds:
        pieces = (f"%{byte:02X}" if upper else f"%{byte:02x}" for byte in text.encode())
        text = "".join(pieces) if text in ("..", "/", "\\", "?", "#") else text.replace("%", "%25")
    return text


ROUNDS = st.lists(st.booleans(), max_size=4)
DOTS = st.builds(encoded, st.just(".."), ROUNDS)
DOT = st.sampled_from([".", "%2e", "%2E", "%252e"])
SPLIT_DOTS = st.tuples(DOT, DOT).map("".join)
SEPARATORS = st.builds(encoded, st.sampled_from(["/", "\\"]), ROUNDS)


@given(st.text(), st.one_of(DOTS, SPLIT_DOTS), st.text())
def test_no_text_with_a_plain_or_encoded_dot_dot_passes(before: str, dots: str, after: str) -> None:
    assert refused(SEGMENT, before + dots + after)
    assert refused(PATH, before + dots + after)


@given(st.text(), SEPARATORS, st.one_of(DOTS, SPLIT_DOTS), SEPARATORS, st.text())
def test_no_step_up_passes_where_the_action_escapes(before: str, left: str, dots: str, right: str, after: str) -> None:
    assert refused(ESCAPED, before + left + dots + right + after)


@given(st.text(), st.builds(encoded, st.sampled_from(["?", "#", "\\"]), ROUNDS), st.text())
def test_no_text_with_a_plain_or_encoded_end_of_path_passes(before: str, mark: str, after: str) -> None:
    assert refused(SEGMENT, before + mark + after)
    assert refused(PATH, before + mark + after)


@given(st.text())
def test_a_segment_that_passes_stays_one_segment_in_the_request(value: str) -> None:
    if refused(SEGMENT, value):
        return
    url = httpx.URL(f"https://api.example.com/v1/things/{value}/parts")
    assert url.host == "api.example.com"
    assert url.query == b""
    assert url.fragment == ""
    segments = url.raw_path.split(b"/")
    assert (segments[:3], segments[4:], len(segments)) == ([b"", b"v1", b"things"], [b"parts"], 5)


@given(st.text(alphabet="ab/.?#%25eEfF\\ ", max_size=12))
def test_a_path_that_passes_stays_below_its_root(value: str) -> None:
    if refused(PATH, value):
        return
    url = httpx.URL(f"https://api.example.com/v1/files/{value}")
    assert url.raw_path.startswith(b"/v1/files/")
    assert (url.query, url.fragment) == (b"", "")


# ── hosts and names in SQL ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("value", ["evil.example/", "eu.evil", "a@b", "a:1", "", "a/b", "a\n", "ä", "%2e", "x" * 64])
def test_a_part_of_a_host_name_is_letters_digits_and_hyphens(value: str) -> None:
    assert refuse_dangerous({"region": value}, effect_of("ses", "send_email")) is not None


@pytest.mark.parametrize("value", ["us-east-1", "EU1"])
def test_a_region_passes(value: str) -> None:
    assert refuse_dangerous({"region": value}, effect_of("ses", "send_email")) is None


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("postgresql.find_row", {"table": 't" WHERE pg_sleep(9) IS NULL --', "column": "id"}),
        ("postgresql.find_row", {"table": "t", "column": 'id" = 1; DROP TABLE t; --'}),
        ("postgresql.find_row", {"table": "t", "schema_name": 'public"."x'}),
        ("postgresql.create_row", {"table": "t", "data": {'a") VALUES (1); --': 1}}),
        ("mysql.find_row", {"table": "t` UNION SELECT 1 INTO OUTFILE '/x' #", "column": "id"}),
        ("mysql.find_row", {"table": '"t` WHERE sleep(9) #"', "column": "id"}),
        ("mysql.update_row", {"table": "t", "data": {"a` = 1 --": 1}}),
        ("snowflake.get_table_sample", {"table_name": "t; DROP TABLE t"}),
        ("snowflake.get_table_sample", {"table_name": "t WHERE SYSTEM$CANCEL_ALL_QUERIES(1)"}),
        ("snowflake.insert_multiple_rows", {"table_name": "t", "columns": ["a", "b) SELECT 1 --"]}),
        ("snowflake.list_tables", {"database": "d", "schema_name": "s--x"}),
    ],
)
def test_a_name_in_sql_is_a_name(name: str, arguments: JsonObject) -> None:
    integration, _, action = name.partition(".")
    assert refuse_dangerous(arguments, effect_of(integration, action)) is not None


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("snowflake.get_table_sample", {"table_name": 'DB.PUBLIC."My Table"'}),
        ("snowflake.insert_multiple_rows", {"table_name": "t", "columns": ["a"], "values": [["x'; --"]]}),
        ("snowflake.insert_row", {"table_name": "t", "values": {"note": "anything; -- at all"}}),
        ("mysql.create_row", {"table": "order-lines", "data": {"größe": "x`"}}),
        ("postgresql.upsert_row", {"table": "t", "schema_name": "s", "data": {"id": 1}, "conflict_target": "id"}),
    ],
)
def test_names_pass_and_the_data_beside_them_is_not_looked_at(name: str, arguments: JsonObject) -> None:
    integration, _, action = name.partition(".")
    assert refuse_dangerous(arguments, effect_of(integration, action)) is None
