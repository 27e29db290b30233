"""The ``parley`` command: what can be typed. Each command loads only what it needs."""
# ruff: noqa: PLC0415

import gc
import os
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from parley.base.errors import Refusal
from parley.base.settings import SettingsError, read_settings
from parley.keyring import KeyringError, SealBroken

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help="A self-hosted assistant."
)
key_commands = typer.Typer(no_args_is_help=True, help="API keys of people, and the master keys that seal the store.")
app.add_typer(key_commands, name="keys")
billing_commands = typer.Typer(no_args_is_help=True, help="Plans and credits by the operator's hand.")
app.add_typer(billing_commands, name="billing")
policy_commands = typer.Typer(no_args_is_help=True, help="When a person is asked before an action runs.")
app.add_typer(policy_commands, name="policy")

integration_commands = typer.Typer(no_args_is_help=True, help="Integrations of your own, and imported APIs.")
app.add_typer(integration_commands, name="integrations")

# Plain assignments: of a ``type`` statement Typer reads nothing but the name.
Email = Annotated[str, typer.Argument(help="The person's e-mail address.")]
Which = Annotated[str, typer.Argument(help="The organization: its id or its slug.")]
Url = Annotated[str, typer.Option(envvar="PARLEY_URL", help="Where the server answers.")]
Key = Annotated[str, typer.Option(envvar="PARLEY_API_KEY", help="Your API key.", show_default=False)]
ActIn = Annotated[
    str, typer.Option(envvar="PARLEY_ORGANIZATION_ID", help="The id of the organization to act in.", show_default=False)
]
Folder = Annotated[
    Path | None, typer.Option("--dir", help="The folder of them; else PARLEY_INTEGRATIONS_DIR.", show_default=False)
]
URL = "http://127.0.0.1:8000"


@app.callback()
def parley() -> None:
    """A self-hosted assistant that acts on a team's own tools."""


@app.command()
def serve(
    role: Annotated[
        Literal["all", "api", "worker"], typer.Option(help="What this process does; all but one need PostgreSQL.")
    ] = "all",
) -> None:
    """Serve the API, the web app and the worker."""
    # Almost all that a start makes is kept: looking through it for garbage would be a tenth of the start.
    gc.disable()
    from parley.cli.serve import serve as run

    run(read_settings(os.environ), role)


@app.command()
def chat(
    message: Annotated[str | None, typer.Argument(help="One turn with this message, then leave.")] = None,
    url: Url = URL,
    key: Key = "",
    organization: ActIn = "",
    llm: Annotated[str, typer.Option(help="The model: provider/model or provider/model@credential.")] = "",
    chat_id: Annotated[str | None, typer.Option("--chat", help="Go on with this chat.")] = None,
) -> None:
    """Talk to the Assistant in this terminal, or do one turn in a script."""
    from parley.cli.chat import ChatOptions
    from parley.cli.chat import chat as run

    raise typer.Exit(run(ChatOptions(url, key, organization, llm, chat_id, message)))


@app.command()
def doctor() -> None:
    """Say what is wrong with this installation, and which command mends it."""
    from parley.cli.doctor import doctor as run

    raise typer.Exit(run(os.environ))


@app.command()
def verify() -> None:
    """Check that everything in the store fits together. Only reads; servers may go on working."""
    from parley.cli.verify import verify as run

    raise typer.Exit(run(read_settings(os.environ)))


@app.command()
def replay(
    what: Annotated[str, typer.Argument(metavar="RUN|FILE", help="A run's id, or a file that --save wrote.")],
    llm: Annotated[str, typer.Option(help="The model: provider/model, with its key in the environment.")] = "",
    save: Annotated[Path | None, typer.Option(help="Write the turn into this file, without secrets, and stop.")] = None,
) -> None:
    """Run a turn again on another model, against its recorded answers: nothing is done, decisions are compared."""
    from parley.cli.replay import replay as run

    raise typer.Exit(run(read_settings(os.environ), what, llm, save))


@app.command()
def backup(
    file: Annotated[Path, typer.Argument(help="Where to write it; it must not exist.")],
    keys: Annotated[
        bool,
        typer.Option("--keys", help="Put the master keys in, sealed with PARLEY_BACKUP_PASSPHRASE or one you type."),
    ] = False,
) -> None:
    """Write the whole store into one file, while servers go on. Without --keys its secrets open only with yours."""
    from parley.cli.backup import backup as run

    run(read_settings(os.environ), file, _passphrase(twice=True) if keys else None)


@app.command()
def restore(
    file: Annotated[Path, typer.Argument(help="A file that parley backup wrote.")],
    keys: Annotated[bool, typer.Option("--keys", help="Take the master keys from it too, if they are in it.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Only look whether the file is whole.")] = False,
) -> None:
    """Put a backup into an empty store, SQLite or PostgreSQL. All of it, or nothing."""
    from parley.cli.backup import check as look
    from parley.cli.backup import restore as run

    if check:
        look(file)
    else:
        run(read_settings(os.environ), file, partial(_passphrase, twice=False) if keys else None)


def _passphrase(*, twice: bool) -> str:
    chosen = os.environ.get("PARLEY_BACKUP_PASSPHRASE", "")
    if not chosen and not sys.stdin.isatty():
        raise SettingsError("There is no terminal to ask on: put the passphrase into PARLEY_BACKUP_PASSPHRASE.")
    return chosen or str(typer.prompt("Passphrase", hide_input=True, confirmation_prompt=twice, err=True))


@app.command("sign-in-link")
def sign_in_link(email: Email) -> None:
    """Print a link that signs a person in to the web app, once, within a day."""
    from parley.cli.keys import sign_in_link as run

    run(read_settings(os.environ), email)


# ── keys ────────────────────────────────────────────────────────────────────────────────────────


@key_commands.command("list")
def list_keys(
    email: Annotated[str | None, typer.Argument(help="Whose; without it, everyone's.")] = None,
) -> None:
    """List API keys, without their text."""
    from parley.cli.keys import list_keys as run

    run(read_settings(os.environ), email)


@key_commands.command("create")
def create_key(
    email: Email,
    name: Annotated[str, typer.Option(help="What to call it.")] = "Made by the operator",
    organization: Annotated[str | None, typer.Option(help="Lock it to the organization with this id.")] = None,
    days: Annotated[int | None, typer.Option(min=1, max=36_500, help="How long it is good.")] = None,
    rate: Annotated[int, typer.Option(min=1, max=1_000_000, help="Requests a minute.")] = 60,
) -> None:
    """Make an API key. It is printed once; nothing else goes to standard output."""
    from parley.cli.keys import KeyWish
    from parley.cli.keys import create_key as run

    run(read_settings(os.environ), KeyWish(email, name, organization, days, rate))


@key_commands.command("revoke")
def revoke_key(
    email: Email, key: Annotated[str, typer.Argument(help="Its id, the first 8 characters of that, or the key.")]
) -> None:
    """End an API key, and the sessions opened with it, for good."""
    from parley.cli.keys import revoke_key as run

    run(read_settings(os.environ), email, key)


@key_commands.command("master")
def print_master_key(
    key_id: Annotated[str | None, typer.Option("--id", help="How to call it; the next free number without it.")] = None,
) -> None:
    """Print a fresh entry for PARLEY_MASTER_KEYS."""
    from parley.cli.master_keys import print_master_key as run

    run(read_settings(os.environ), key_id)


@key_commands.command("rotate")
def rotate_master_key() -> None:
    """Seal everything anew under the first master key, while servers run, and say which keys may go."""
    from parley.cli.master_keys import rotate_master_key as run

    raise typer.Exit(run(read_settings(os.environ)))


# ── billing ─────────────────────────────────────────────────────────────────────────────────────


@billing_commands.command("show")
def show_billing(
    organization: Annotated[str | None, typer.Argument(help="Its id or slug; without it, all of them.")] = None,
) -> None:
    """Show an organization's plan, month and wallet."""
    from parley.cli.billing import show

    show(read_settings(os.environ), organization)


@billing_commands.command("plan")
def put_on_plan(
    organization: Which,
    plan: Annotated[str, typer.Argument(help="The plan's slug.")],
    instead_of: Annotated[
        str | None, typer.Option(help="A Stripe subscription that is over, where Parley still counts it as paid.")
    ] = None,
) -> None:
    """Put an organization on a plan from now on, without payment."""
    from parley.cli.billing import put_on_plan as run

    run(read_settings(os.environ), organization, plan, instead_of)


@billing_commands.command("grant")
def grant_credits(
    organization: Which,
    amount: Annotated[int, typer.Argument(min=1, max=1_000_000_000, metavar="CREDITS", help="How many.")],
    grant_id: Annotated[
        str | None, typer.Option("--id", help="Names this grant: the same one counts once, however often it is run.")
    ] = None,
) -> None:
    """Put prepaid credits into an organization's wallet."""
    from parley.cli.billing import grant

    grant(read_settings(os.environ), organization, amount, grant_id)


# ── policy ──────────────────────────────────────────────────────────────────────────────────────


@policy_commands.command("check")
def check_policy(
    days: Annotated[int, typer.Option(min=1, max=3_650, help="How far to look back.")] = 30,
) -> None:
    """Show what each approval policy would have asked about, over past calls. Changes nothing."""
    from parley.cli.policy import check_policy as run

    run(read_settings(os.environ), days)


# ── integrations ────────────────────────────────────────────────────────────────────────────────


@integration_commands.command("new")
def new_integration(name: Annotated[str, typer.Argument(help="What to call it.")], folder: Folder = None) -> None:
    """Make a folder with a working integration and a test of it, to change into your own."""
    from parley.cli.integrations import new

    raise typer.Exit(new(read_settings(os.environ), name, folder))


@integration_commands.command("check")
def check_integrations(
    name: Annotated[str | None, typer.Argument(help="Only this one.")] = None, folder: Folder = None
) -> None:
    """Say what is wrong with house integrations, and what to do about it."""
    from parley.cli.integrations import check

    raise typer.Exit(check(read_settings(os.environ), name, folder))


@integration_commands.command("import")
def import_api(
    spec: Annotated[str, typer.Argument(help="An OpenAPI document: a file, or its web address.")],
    server_url: Annotated[str, typer.Option(help="Where the API is, if not where the document says.")] = "",
    name: Annotated[str, typer.Option(help="What to call it, if not by its title; makes a second one too.")] = "",
    url: Url = URL,
    key: Key = "",
    organization: ActIn = "",
    yes: Annotated[bool, typer.Option("--yes", help="Import without being asked.")] = False,
) -> None:
    """Show what an API can do, and import it as an integration of your organization."""
    from parley.cli.integrations import ImportWish
    from parley.cli.integrations import import_api as run

    raise typer.Exit(run(ImportWish(url, key, organization, spec, server_url, name, yes)))


def main() -> None:
    """Run the command; trouble that an operator can mend is one sentence, not a traceback."""
    try:
        app()
    except (SettingsError, KeyringError, SealBroken) as error:
        print(f"parley: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except Refusal as refusal:
        print(f"parley: {refusal.detail}", file=sys.stderr)
        raise SystemExit(1) from None
