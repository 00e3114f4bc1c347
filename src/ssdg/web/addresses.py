"""Names of hosts -> the addresses to connect to, all of them public unless that is waived."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

from .refusal import Refused

Resolver = Callable[[str, int], Sequence[str]]  # (host, port) -> addresses
_NAT64 = IPv6Network("64:ff9b::/96")


def system_resolver(host: str, port: int) -> list[str]:
    """What the system's resolver says."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def checked_addresses(host: str, port: int, resolver: Resolver, *, allow_private: bool) -> Sequence[str]:
    """Resolve once; one address that is not public is enough to refuse the host.

    Connect to these addresses and never resolve again, or the name could change its mind in between.
    """
    try:
        addresses = resolver(host, port)
    except (OSError, UnicodeError):
        raise Refused("unreachable", f"no address for the host {host}") from None
    if not addresses:
        raise Refused("unreachable", f"no address for the host {host}")
    if not allow_private:
        for address in addresses:
            if not is_public(address):
                raise Refused("address", f"{host} has the address {address}, which is not public")
    return addresses


def is_public(address: str) -> bool:
    """Whether an address is of the open internet; one that carries another address is judged by that too."""
    return all(one.is_global and not one.is_multicast and not one.is_reserved for one in _judged(ip_address(address)))


def _judged(ip: IPv4Address | IPv6Address) -> Sequence[IPv4Address | IPv6Address]:
    if isinstance(ip, IPv4Address):
        return (ip,)
    if ip.ipv4_mapped is not None:
        return (ip.ipv4_mapped,)
    if ip in _NAT64:
        return (IPv4Address(int(ip) & 0xFFFFFFFF),)
    if ip.sixtofour is not None:
        return (ip, ip.sixtofour)
    return (ip, *(ip.teredo or ()))
