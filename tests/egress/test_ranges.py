"""The address decision against an oracle of its own: IANA's registries as plain integer spans."""

from ipaddress import IPv4Address, IPv6Address

from hypothesis import example, given
from hypothesis import strategies as st

from parley.egress.ranges import is_private_name, is_public

# IANA IPv4 Special-Purpose Address Registry, everything not globally reachable; then multicast; then
# the host agent of one cloud that has a public-looking address.
SPECIAL_4 = (
    (0x00000000, 0x00FFFFFF),  # 0/8
    (0x0A000000, 0x0AFFFFFF),  # 10/8
    (0x64400000, 0x647FFFFF),  # 100.64/10
    (0x7F000000, 0x7FFFFFFF),  # 127/8
    (0xA9FE0000, 0xA9FEFFFF),  # 169.254/16
    (0xAC100000, 0xAC1FFFFF),  # 172.16/12
    (0xC0000000, 0xC00000FF),  # 192.0.0/24, with Oracle's metadata
    (0xC0000200, 0xC00002FF),  # 192.0.2/24
    (0xC0586300, 0xC05863FF),  # 192.88.99/24
    (0xC0A80000, 0xC0A8FFFF),  # 192.168/16
    (0xC6120000, 0xC613FFFF),  # 198.18/15
    (0xC6336400, 0xC63364FF),  # 198.51.100/24
    (0xCB007100, 0xCB0071FF),  # 203.0.113/24
    (0xE0000000, 0xEFFFFFFF),  # multicast
    (0xF0000000, 0xFFFFFFFF),  # 240/4, broadcast
    (0xA83F8110, 0xA83F8110),  # 168.63.129.16
)
# IANA IPv6 Special-Purpose Address Registry inside 2000::/3, by leading bits: (value, number of bits).
SPECIAL_6 = (
    (0x20010000 >> 9, 23),  # 2001::/23
    (0x20010DB8, 32),
    (0x2002, 16),
    (0x3FFF0, 20),
)
WIDTH_6 = 128


def oracle_4(number: int) -> bool:
    return all(not first <= number <= last for first, last in SPECIAL_4)


def oracle_6(number: int) -> bool:
    if number >> 125 != 0b001:
        return False
    isatap = (number >> 32) & 0xFDFFFFFF == 0x00005EFE
    return not isatap and all(number >> (WIDTH_6 - bits) != value for value, bits in SPECIAL_6)


EDGES_4 = [edge + step for span in SPECIAL_4 for edge in span for step in (-1, 0, 1) if 0 <= edge + step < 2**32]
PREFIXES_6 = [value << (WIDTH_6 - bits) for value, bits in SPECIAL_6] + [1 << 125, 1 << 126]
EDGES_6 = [edge + step for edge in PREFIXES_6 for step in (-1, 0, 1)] + [
    ((value + 1) << (WIDTH_6 - bits)) + step for value, bits in SPECIAL_6 for step in (-1, 0, 1)
]


@given(st.integers(0, 2**32 - 1) | st.sampled_from(EDGES_4))
def test_every_ipv4_address_is_judged_as_the_registry_says(number: int) -> None:
    assert is_public(IPv4Address(number)) is oracle_4(number)


def test_every_border_of_an_ipv4_range_is_judged_as_the_registry_says() -> None:
    for number in EDGES_4:
        assert is_public(IPv4Address(number)) is oracle_4(number), IPv4Address(number)


@given(
    st.integers(0, 2**128 - 1)
    | st.sampled_from(EDGES_6)
    | st.integers(0x2000 << 112, (0x4000 << 112) - 1)
    | st.integers(0x2001 << 112, (0x2003 << 112) - 1)
)
@example(int(IPv6Address("2600::5efe:a00:1")))
@example(int(IPv6Address("2600::200:5efe:a00:1")))
@example(int(IPv6Address("2600::100:5efe:a00:1")))
def test_every_ipv6_address_is_judged_as_the_registry_says(number: int) -> None:
    assert is_public(IPv6Address(number)) is oracle_6(number)


def test_every_border_of_an_ipv6_range_is_judged_as_the_registry_says() -> None:
    for number in EDGES_6:
        assert is_public(IPv6Address(number)) is oracle_6(number), IPv6Address(number)


def test_an_address_with_a_zone_is_never_public() -> None:
    assert is_public(IPv6Address("2600::1"))
    assert not is_public(IPv6Address("2600::1%eth0"))


def test_names_that_mean_something_only_inside_a_network_are_private() -> None:
    suffixes = "arpa corp home internal intranet invalid lan local localdomain localhost onion private test"
    assert all(is_private_name(f"host.{suffix}") for suffix in suffixes.split())
    assert is_private_name("localhost")
    assert is_private_name("postgres")
    assert not any(is_private_name(name) for name in ("example.com", "local.example.com", "internal.io", "a.b.co"))
