"""One GET through each HTTP client of this process: ours, and those of integrations."""

import asyncio
import os
import ssl
import urllib.request
from collections.abc import Awaitable, Callable
from functools import cache
from typing import cast

import aiohttp
import httpx
import httpx2
import requests
import urllib3
from botocore.awsrequest import AWSRequest
from botocore.httpsession import URLLib3Session

from parley.egress import Egress

type Headers = dict[str, str]
type Fetch = Callable[[Egress, str, Headers], Awaitable[bytes]]


async def by_request(egress: Egress, url: str, headers: Headers) -> bytes:
    return (await egress.request("GET", url, headers=headers, seconds=5)).body


async def by_session(egress: Egress, url: str, headers: Headers) -> bytes:
    async with egress.tenant_session().get(url, headers=headers) as response:
        return await response.read()


async def by_aiohttp(_egress: Egress, url: str, headers: Headers) -> bytes:
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers, ssl=usual_tls()) as response:
        return await response.read()


async def by_httpx(_egress: Egress, url: str, headers: Headers) -> bytes:
    async with httpx.AsyncClient(follow_redirects=True) as client:
        return (await client.get(url, headers=headers)).content


async def by_httpx_blocking(_egress: Egress, url: str, headers: Headers) -> bytes:
    def get() -> bytes:
        with httpx.Client(follow_redirects=True) as client:
            return client.get(url, headers=headers).content

    return await asyncio.to_thread(get)


async def by_httpx2(_egress: Egress, url: str, headers: Headers) -> bytes:
    async with httpx2.AsyncClient(follow_redirects=True) as client:
        return (await client.get(url, headers=headers)).content


async def by_httpx2_blocking(_egress: Egress, url: str, headers: Headers) -> bytes:
    def get() -> bytes:
        with httpx2.Client(follow_redirects=True) as client:
            return client.get(url, headers=headers).content

    return await asyncio.to_thread(get)


async def by_requests(_egress: Egress, url: str, headers: Headers) -> bytes:
    def get() -> bytes:
        with requests.Session() as session:
            return session.get(url, headers=headers, timeout=5).content

    return await asyncio.to_thread(get)


async def by_urllib3(_egress: Egress, url: str, headers: Headers) -> bytes:
    def get() -> bytes:
        with urllib3.PoolManager(
            retries=urllib3.Retry(connect=0, other=0, redirect=3), ssl_context=usual_tls()
        ) as pool:
            return pool.request("GET", url, headers=headers).data

    return await asyncio.to_thread(get)


async def by_botocore(_egress: Egress, url: str, headers: Headers) -> bytes:
    def get() -> bytes:
        session = URLLib3Session(verify=cast(bool, os.environ.get("AWS_CA_BUNDLE") or True))  # as boto3 does
        try:
            return session.send(AWSRequest("GET", url, headers).prepare()).content
        finally:
            session.close()

    return await asyncio.to_thread(get)


async def by_urllib(_egress: Egress, url: str, headers: Headers) -> bytes:
    def get() -> bytes:
        request = urllib.request.Request(url, headers=headers)
        with urllib.request.urlopen(request, timeout=5, context=usual_tls()) as response:
            return response.read()

    return await asyncio.to_thread(get)


def usual_tls() -> ssl.SSLContext:
    return tls_for(os.environ.get("SSL_CERT_FILE"))


@cache
def tls_for(ca_file: str | None) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ca_file)


OURS: tuple[Fetch, ...] = (by_request, by_session)
HTTPX: tuple[Fetch, ...] = (by_httpx, by_httpx_blocking, by_httpx2, by_httpx2_blocking)
CHECKED: tuple[Fetch, ...] = (*OURS, *HTTPX, by_aiohttp, by_requests, by_urllib3)  # also before they dial
THEIRS: tuple[Fetch, ...] = (*HTTPX, by_aiohttp, by_requests, by_urllib3, by_botocore, by_urllib)
ALL: tuple[Fetch, ...] = (*OURS, *THEIRS)
