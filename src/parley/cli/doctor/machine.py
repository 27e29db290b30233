"""What can be told from the settings and the files of this machine alone."""

import os
import shlex
import shutil
from collections.abc import AsyncIterator, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from parley.base.settings import Settings, SettingsError
from parley.billing import load_plans
from parley.cli.doctor.finding import START, Finding, broken, good, note
from parley.cli.opening import existing_keyring
from parley.http.app_files import STATIC, read_build
from parley.integrations.catalog import PACKAGE, Catalog
from parley.integrations.house import open_house, subfolders
from parley.integrations.index import SHIPPED, IndexBroken, read_index
from parley.keyring import KEY_FILE, KeyringError, has_keys

PREFIX = "PARLEY_"
# What the commands read beside the server's settings.
OTHER_NAMES = frozenset({"PARLEY_URL", "PARLEY_BACKUP_PASSPHRASE", "PARLEY_API_KEY", "PARLEY_ORGANIZATION_ID"})
# The test suite's own.
TEST_PREFIX = "PARLEY_TEST_"
PAYMENT_NAMES = ("STRIPE_SECRET_KEY", "STRIPE_WEBHOOK_SECRET")
LEAST_FREE_BYTES = 500 << 20
STORE_FILES = "parley.db*"
ANEW = "Install Parley's environment anew: make serve"


def check_settings(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Names that no setting has."""
    known = {f"{PREFIX}{name.upper()}" for name in Settings.__dataclass_fields__} | OTHER_NAMES
    unknown = [
        name
        for name in sorted(environment)
        if name.startswith(PREFIX) and not name.startswith(TEST_PREFIX) and name not in known
    ]
    for name in unknown:
        yield note("Settings", f"{name} is no setting, so it does nothing.", "Check its spelling, or unset it.")
    if not unknown:
        yield good("Settings", "read from the environment")


def check_folder(settings: Settings) -> Iterator[Finding]:
    """The data folder."""
    folder = settings.data_dir
    topic = "Data folder"
    nearest = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not nearest.is_dir():
        yield broken(topic, f"{nearest} is no folder.", "Choose another: PARLEY_DATA_DIR=/path/of/a/folder")
    elif not os.access(nearest, os.W_OK | os.X_OK):
        yield broken(topic, f"{nearest} cannot be written to by this user.", f'sudo chown -R "$(id -un)" {nearest}')
    elif nearest != folder.absolute():
        yield note(topic, f"{folder} is not there yet.", START)
    elif (free := shutil.disk_usage(nearest).free) < LEAST_FREE_BYTES:
        yield note(topic, f"{folder} has only {free >> 20} MB left.", "Free some space on its disk.")
    elif open_ones := [path for path in (folder, *folder.glob(STORE_FILES)) if path.stat().st_mode & 0o077]:
        listed = ", ".join(map(str, sorted(open_ones)))
        yield note(topic, f"Other users of this machine can look into {listed}.", f"chmod -R go= {folder}")
    else:
        yield good(topic, f"{folder} is writable, and nobody else's")


def check_keys(settings: Settings) -> Iterator[Finding]:
    """The master keys."""
    topic, path = "Master keys", settings.data_dir / KEY_FILE
    if not has_keys(settings.master_keys, settings.data_dir):
        yield note(topic, "There is none yet. Keep a copy of it apart from the backups, once it is made.", START)
        return
    try:
        keyring = existing_keyring(settings)
    except KeyringError as error:
        mend = "" if settings.master_keys else f"chmod 600 {path}"
        yield broken(topic, str(error), mend or "Make a new entry with: parley keys master")
        return
    except OSError as error:
        yield broken(topic, f"{path} cannot be read: {error.strerror}", f'sudo chown "$(id -un)" {path}')
        return
    source = "PARLEY_MASTER_KEYS" if settings.master_keys else f"{path} (mode 600)"
    more = "" if len(keyring.key_ids) == 1 else f"; also known: {', '.join(keyring.key_ids[1:])}"
    yield good(topic, f"{keyring.primary} seals, from {source}{more}")


def check_plans(settings: Settings) -> Iterator[Finding]:
    """The plan file."""
    try:
        plans = load_plans(settings.plans_file)
    except SettingsError as error:
        yield broken("Plans", str(error), "Mend the file, or unset PARLEY_PLANS_FILE to use the shipped one.")
        return
    source = settings.plans_file or "the shipped file"
    yield good("Plans", f"{len(plans.plans)} in {source}; new organizations are on {plans.of(None).name}")


def check_payments(settings: Settings) -> Iterator[Finding]:
    """The two keys of payments, which only work together."""
    given = [name for name in PAYMENT_NAMES if settings.environment.get(name)]
    if len(given) == 1:
        yield broken(
            "Payments",
            f"{given[0]} is set, and its companion is not.",
            f"Set both {' and '.join(PAYMENT_NAMES)}, or none.",
        )
    elif given:
        yield good("Payments", "through Stripe")


def check_addresses(settings: Settings) -> Iterator[Finding]:
    """What links, cookies and sign-ins are built on."""
    topic, example = "Public address", "PARLEY_PUBLIC_URL=https://parley.example.com"
    parts = urlsplit(settings.base_url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        yield broken(topic, "PARLEY_PUBLIC_URL is no web address.", example)
    elif not settings.public_url and not _is_local(settings.host):
        yield broken(
            topic,
            f"PARLEY_HOST lets other machines in, but links and sign-ins lead to {settings.base_url}.",
            f"Say how browsers reach this server: {example}",
        )
    elif parts.scheme == "http" and not _is_local(parts.hostname):
        yield note(
            topic, f"{settings.base_url} is not encrypted: keys and cookies travel in the clear.", f"Use TLS: {example}"
        )
    else:
        yield good(topic, settings.base_url)


def check_catalog(settings: Settings) -> Iterator[Finding]:
    """The integrations: which package, and what of it does not load here."""
    topic, mend = "Integrations", ANEW
    try:
        installed = version(PACKAGE)
    except PackageNotFoundError:
        yield broken(topic, f"{PACKAGE} is not installed.", mend)
        return
    try:
        index = read_index(SHIPPED)
        cached = settings.data_dir / f"catalog-{installed}.json.gz"
        if installed != index.package_version and cached.exists():
            index = read_index(cached)
    except (OSError, IndexBroken) as error:
        yield broken(topic, f"The index cannot be read: {error}", mend)
        return
    catalog = Catalog(index)
    failures = catalog.failures()
    for name, reason in sorted(failures.items()):
        yield broken(topic, f"{name} does not load: {reason}", mend)
    if installed != index.package_version:
        yield note(topic, f"{PACKAGE} {installed} is not indexed yet; the next start does it, once.", START)
    actions = sum(len(integration.actions) for integration in catalog.integrations())
    yield good(topic, f"{PACKAGE} {index.package_version}: {len(catalog.summaries())} with {actions} actions")


async def check_house(settings: Settings) -> AsyncIterator[Finding]:
    """The operator's own integrations."""
    topic, folder = "House", settings.house
    if folder is None:
        return
    try:
        taken = read_index(SHIPPED).names
    except (OSError, IndexBroken) as error:
        yield broken(topic, f"Names cannot be compared with the catalog's, whose index cannot be read: {error}", ANEW)
        return
    trouble = _folder_trouble(topic, folder)
    if trouble is not None:
        yield trouble
        return
    house = await open_house(folder, settings.data_dir, taken)
    for name, reason in house.failures.items():
        yield broken(topic, f"{name} does not load: {reason}", f"parley integrations check {name}")
    undeclared = [
        f"{each.name}.{action.name}"
        for each in house.integrations.values()
        for action in each.actions
        if action.effect is None
    ]
    if undeclared:
        yield note(
            topic,
            f"{len(undeclared)} actions declare no effect and always ask first, such as {undeclared[0]}.",
            "Add them to effects in their manifest.json.",
        )
    yield good(topic, f"{len(house.integrations)} in {folder}")


def _folder_trouble(topic: str, folder: Path) -> Finding | None:
    quoted = shlex.quote(str(folder))
    try:
        subfolders(folder)
    except (FileNotFoundError, NotADirectoryError):
        return broken(topic, f"PARLEY_INTEGRATIONS_DIR names {folder}, which is no folder.", f"mkdir -p {quoted}")
    except OSError as error:
        said = f"PARLEY_INTEGRATIONS_DIR names {folder}, which cannot be listed: {error.strerror}."
        if isinstance(error, PermissionError):
            return broken(topic, said, f'sudo chown -R "$(id -un)" {quoted}')
        return broken(topic, said, "export PARLEY_INTEGRATIONS_DIR=/path/of/the/folder")
    return None


def check_web_app() -> Iterator[Finding]:
    """The built pages."""
    topic = "Web app"
    if read_build(STATIC):
        yield good(topic, "built; neither Node nor a browser is needed on this machine")
    else:
        yield broken(topic, "The built pages are missing.", "cd web && npm ci && npm run build")


def _is_local(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
