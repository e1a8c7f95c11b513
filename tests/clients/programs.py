"""The clients: how each is pointed at a base URL, and how it is run headless, in an empty project with an empty home.

`installing.py` installs them. Nothing outside of loopback can be reached by a client: its proxy is a closed port.
"""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic

import msgspec

from .script import FILE, FILE_TEXT

RUN_SECONDS = 180
KEY = "not-a-real-key"
NOWHERE = "http://127.0.0.1:9"


class Place(msgspec.Struct, frozen=True):
    """Where a client runs: its home, its project, and the base URL that it asks."""

    home: Path
    project: Path
    url: str


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """A program. `packages` are of npm; `requirement` is of Python's index, for those that are written in it.

    `program` is where it lies in the folder of the installation, as a pattern; one that ends in `js` is run by Node.
    `configure` writes its files and returns its environment. `command` are its arguments, for a new conversation or for
    the next turn of the last one. `known_as` is what the gateway calls its sessions where its user agent names an SDK.
    """

    name: str
    api: str
    model: str
    program: str
    configure: Callable[[Place], dict[str, str]]
    command: Callable[[str, bool], Sequence[str]]
    packages: dict[str, str] = {}
    requirement: str = ""
    has_tools: bool = True
    known_as: str = ""


class Ran(msgspec.Struct, frozen=True):
    """What came of a run. `code` is None where it was stopped because its time was over."""

    output: str
    errors: str
    code: int | None
    seconds: float


def place(folder: Path, url: str) -> Place:
    """Return a new home and a new project with one file in it."""
    home, project = folder / "home", folder / "project"
    for each in (home, project):
        each.mkdir(parents=True, exist_ok=True)
    (project / FILE).write_text(FILE_TEXT + "\n", encoding="utf-8")
    return Place(home, project, url)


def run(client: Client, program: Path, where: Place, prompt: str, *, resume: bool = False) -> Ran:
    """Run a client until it has answered; stop it, and what it started, when its time is over."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(where.home),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "NO_COLOR": "1",
        "HTTP_PROXY": NOWHERE,
        "HTTPS_PROXY": NOWHERE,
        "NO_PROXY": "127.0.0.1,localhost",
        **client.configure(where),
    }
    command = [*(["node"] if program.suffix == ".js" else []), str(program), *client.command(prompt, resume)]
    began = monotonic()
    process = subprocess.Popen(
        command,
        cwd=where.project,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    code: int | None
    try:
        output, errors = process.communicate(timeout=RUN_SECONDS)
        code = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, errors = process.communicate()
        code = None
    return Ran(output, errors, code, monotonic() - began)


# ---------------------------------------------------------------- one client each


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _claude_code(where: Place) -> dict[str, str]:
    return {
        "ANTHROPIC_BASE_URL": where.url,
        "ANTHROPIC_API_KEY": KEY,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }


def _codex(where: Place) -> dict[str, str]:
    _write(
        where.home / ".codex" / "config.toml",
        f"""
model = "gpt-5.2"
model_provider = "tried"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false

[model_providers.tried]
name = "tried"
base_url = "{where.url}/v1"
wire_api = "responses"
env_key = "TRIED_KEY"
# A gateway that starts again on a busy machine takes seconds.
request_max_retries = 10
stream_max_retries = 10

[analytics]
enabled = false
""",
    )
    return {"TRIED_KEY": KEY, "CODEX_HOME": str(where.home / ".codex")}


def _opencode(where: Place) -> dict[str, str]:
    settings = {
        "autoupdate": False,
        "share": "disabled",
        "permission": {"bash": "allow", "read": "allow"},
        "provider": {
            "tried": {
                "npm": "@ai-sdk/openai-compatible",
                "options": {"baseURL": f"{where.url}/v1", "apiKey": KEY},
                "models": {"some-model": {"limit": {"context": 100_000, "output": 8_000}}},
            }
        },
    }
    _write(where.home / ".config" / "opencode" / "opencode.json", json.dumps(settings))
    return {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}


def _gemini_cli(where: Place) -> dict[str, str]:
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"disableAutoUpdate": True, "disableUpdateNag": True},
    }
    _write(where.home / ".gemini" / "settings.json", json.dumps(settings))
    return {"GOOGLE_GEMINI_BASE_URL": where.url, "GEMINI_API_KEY": KEY, "GEMINI_CLI_TRUST_WORKSPACE": "true"}


def _qwen_code(where: Place) -> dict[str, str]:
    settings = {
        "security": {"auth": {"selectedType": "openai"}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"disableAutoUpdate": True},
    }
    _write(where.home / ".qwen" / "settings.json", json.dumps(settings))
    # It asks loopback through the proxy too.
    proxy = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY"), "")
    return {"OPENAI_BASE_URL": f"{where.url}/v1", "OPENAI_API_KEY": KEY, "OPENAI_MODEL": "some-model", **proxy}


def _pi(where: Place) -> dict[str, str]:
    model = {"id": "some-model", "contextWindow": 100_000, "maxTokens": 8_000}
    provider = {"baseUrl": f"{where.url}/v1", "api": "openai-completions", "apiKey": KEY, "models": [model]}
    _write(where.home / ".pi" / "agent" / "models.json", json.dumps({"providers": {"tried": provider}}))
    return {"PI_OFFLINE": "1"}


def _aider(where: Place) -> dict[str, str]:
    return {"OPENAI_API_BASE": f"{where.url}/v1", "OPENAI_API_KEY": KEY, "AIDER_ANALYTICS": "false"}


CLIENTS: dict[str, Client] = {
    client.name: client
    for client in (
        Client(
            name="claude-code",
            api="anthropic-messages",
            model="claude-sonnet-4-5",
            packages={"@anthropic-ai/claude-code": "2.1.325"},
            program="node_modules/@anthropic-ai/claude-code-*/claude",
            configure=_claude_code,
            command=lambda prompt, resume: [
                *("-p", prompt, "--allowedTools", "Bash,Read"),
                *(["--continue"] if resume else []),
            ],
        ),
        Client(
            name="codex",
            api="openai-responses",
            model="gpt-5.2",
            packages={"@openai/codex": "0.166.0"},
            program="node_modules/@openai/codex/bin/codex.js",
            configure=_codex,
            command=lambda prompt, resume: [
                *("exec", "--skip-git-repo-check", *(["resume", "--last"] if resume else []), prompt),
            ],
        ),
        Client(
            name="opencode",
            api="openai-chat",
            model="some-model",
            packages={"opencode-ai": "1.18.33"},
            program="node_modules/opencode-*-baseline/bin/opencode",
            configure=_opencode,
            command=lambda prompt, resume: [
                *("run", "-m", "tried/some-model", *(["--continue"] if resume else []), prompt),
            ],
        ),
        Client(
            name="gemini-cli",
            api="gemini",
            model="gemini-2.5-pro",
            packages={"@google/gemini-cli": "0.61.0"},
            program="node_modules/@google/gemini-cli/bundle/gemini.js",
            configure=_gemini_cli,
            command=lambda prompt, resume: [
                *("-m", "gemini-2.5-pro", "--yolo", *(["--resume", "latest"] if resume else []), "-p", prompt),
            ],
        ),
        Client(
            name="qwen-code",
            api="openai-chat",
            model="some-model",
            packages={"@qwen-code/qwen-code": "0.15.10"},
            program="node_modules/@qwen-code/qwen-code/cli.js",
            configure=_qwen_code,
            command=lambda prompt, resume: ["--yolo", *(["--continue"] if resume else []), "-p", prompt],
        ),
        Client(
            name="pi",
            api="openai-chat",
            model="some-model",
            known_as="chat",
            packages={"@earendil-works/pi-coding-agent": "0.74.2"},
            program="node_modules/@earendil-works/pi-coding-agent/dist/cli.js",
            configure=_pi,
            command=lambda prompt, resume: [
                *("-p", "--provider", "tried", "--model", "some-model", *(["--continue"] if resume else []), prompt),
            ],
        ),
        Client(
            name="aider",
            api="openai-chat",
            model="some-model",
            known_as="chat",
            requirement="aider-chat==0.86.2",
            program="bin/aider",
            configure=_aider,
            command=lambda prompt, resume: [
                *(
                    "--model",
                    "openai/some-model",
                    "--no-git",
                    "--yes-always",
                    "--no-check-update",
                    "--no-show-model-warnings",
                ),
                *(
                    "--no-analytics",
                    "--no-pretty",
                    *(["--restore-chat-history"] if resume else []),
                    "--message",
                    prompt,
                ),
            ],
            has_tools=False,
        ),
    )
}
