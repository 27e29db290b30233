"""Which addresses and names are on the public internet: our own tables, not the standard library's.

``ipaddress.is_global`` of Python 3.12.1 calls Oracle's metadata address, NAT64, 6to4 and site-local
addresses global, and its tables still change between patch releases (trust §2.4).
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

type Address = IPv4Address | IPv6Address

CLOSED_4 = tuple(
    IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # carrier-grade NAT; Alibaba's metadata is 100.100.100.200
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # Azure's host agent answers here, inside every virtual network
        "169.254.0.0/16",  # link-local; most clouds' metadata is 169.254.169.254
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments; Oracle's metadata is 192.0.0.192
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarking
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    )
)

# Everything else in IPv6 is loopback, local (Amazon's metadata is fd00:ec2::254), multicast, unassigned,
# or carries an IPv4 address inside: ::ffff:0:0/96, 64:ff9b::/96, 64:ff9b:1::/48.
OPEN_6 = IPv6Network("2000::/3")
CLOSED_6 = tuple(
    IPv6Network(network)
    for network in (
        "2001::/23",  # protocol assignments: Teredo, ORCHID, benchmarking, relays
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4: an IPv4 address inside
        "3fff::/20",  # documentation
    )
)
# An interface identifier of ISATAP (RFC 5214) ends in an IPv4 address that the nearest router dials.
ISATAP = frozenset({0x0000_5EFE, 0x0200_5EFE})

PRIVATE_SUFFIXES = frozenset(
    {
        "arpa",
        "corp",
        "home",
        "internal",
        "intranet",
        "invalid",
        "lan",
        "local",
        "localdomain",
        "localhost",
        "onion",
        "private",
        "test",
    }
)


def is_public(address: Address) -> bool:
    """Whether the address is a unicast host on the public internet, and not another address in disguise."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in CLOSED_4)
    if address.scope_id is not None or address not in OPEN_6:
        return False
    if (int(address) >> 32) & 0xFFFF_FFFF in ISATAP:
        return False
    return not any(address in network for network in CLOSED_6)


def is_private_name(name: str) -> bool:
    """Whether a lower-case host name can only mean something inside somebody's network."""
    parent, _, last = name.rpartition(".")
    return not parent or last in PRIVATE_SUFFIXES
