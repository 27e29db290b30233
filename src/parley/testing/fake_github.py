"""GitHub on this machine, behind ``provider_proxy``."""

import asyncio

from parley.testing.provider_proxy import Answer, Asked, json_answer
from parley.turn.model import JsonObject, JsonValue


class FakeGitHub:
    """As much of api.github.com as a conversation needs, counting what it changes.

    ``token`` is the only one it accepts; ``created`` and ``deleted`` are the effects in their order.
    """

    def __init__(self, token: str, *, owner: str = "octocat", repositories: tuple[str, ...] = ("hello-world",)) -> None:
        self.token = token
        self.owner = owner
        self.repositories = list(repositories)
        self.issues: dict[int, JsonObject] = {}
        self.created: list[JsonObject] = []
        self.deleted: list[str] = []
        self.updated: list[int] = []
        self.held = asyncio.Event()
        self._open = asyncio.Event()
        self._open.set()

    def hold(self) -> None:
        """Let requests wait from now on; ``held`` is set once one does."""
        self.held.clear()
        self._open.clear()

    def let_go(self) -> None:
        """Let waiting requests go on."""
        self._open.set()

    async def __call__(self, asked: Asked) -> Answer:
        """Answer one request as GitHub would."""
        if asked.headers.get("authorization") != f"Bearer {self.token}":
            return json_answer({"message": "Bad credentials"}, 401)
        if not self._open.is_set():
            self.held.set()
            await self._open.wait()
        match (asked.method, asked.path.strip("/").split("/")):
            case "GET", ["user"]:
                return json_answer({"login": self.owner, "id": 1})
            case "GET", ["user", "repos"]:
                return json_answer([self._repository(name) for name in self.repositories])
            case "DELETE", ["repos", self.owner, name] if name in self.repositories:
                self.repositories.remove(name)
                self.deleted.append(name)
                return Answer(204)
            case "POST", ["repos", self.owner, name, "issues"] if name in self.repositories:
                return json_answer(self._create_issue(name, asked.json), 201)
            case method, ["repos", self.owner, name, "issues", number] if name in self.repositories:
                return self._one_issue(method, name, number)
            case _:
                return json_answer({"message": "Not Found"}, 404)

    def _one_issue(self, method: str, repository: str, number: str) -> Answer:
        if method == "PATCH":
            self.updated.append(int(number))
            return json_answer({"number": int(number), "title": "Bug", "state": "closed", "html_url": "", "id": 1})
        if method == "GET" and self._has_issue(repository, number):
            return json_answer(self.issues[int(number)])
        return json_answer({"message": "Not Found"}, 404)

    def _repository(self, name: str) -> JsonObject:
        full_name = f"{self.owner}/{name}"
        return {
            "id": 1 + self.repositories.index(name),
            "name": name,
            "full_name": full_name,
            "private": False,
            "html_url": f"https://github.com/{full_name}",
            "description": None,
            "owner": {"login": self.owner},
        }

    def _create_issue(self, repository: str, body: JsonValue) -> JsonObject:
        sent = body if isinstance(body, dict) else {}
        number = len(self.issues) + 1
        issue: JsonObject = {
            "id": 1000 + number,
            "number": number,
            "title": sent.get("title"),
            "body": sent.get("body"),
            "state": "open",
            "html_url": f"https://github.com/{self.owner}/{repository}/issues/{number}",
            "user": {"login": self.owner},
            "labels": [],
            "repository": repository,
        }
        self.issues[number] = issue
        self.created.append(issue)
        return issue

    def _has_issue(self, repository: str, number: str) -> bool:
        return number.isdigit() and self.issues.get(int(number), {}).get("repository") == repository
