"""The aiohttp.web application: the page's files, its endpoints, and what an error looks like. Knows no command line."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

from aiohttp import web

from ...errors import DragomanError, ErrorCode
from ...models import Model
from ...models.names import LOCAL, split_name
from ...store import SessionStore
from ...wire import find_dialect
from .actions import add_actions
from .reading import add_reading
from .safety import Access, refuse
from .sessions import add_sessions
from .state import STATE, InspectorState, MakeAgent, OpenModel

__all__ = ["inspector"]

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

STATUS = {
    ErrorCode.NOT_FOUND: 404,
    ErrorCode.CONFLICT: 409,
    ErrorCode.BUSY: 409,
    ErrorCode.CORRUPT: 422,
    ErrorCode.TOO_NEW: 422,
    ErrorCode.INVALID_REQUEST: 400,
    ErrorCode.UNSUPPORTED: 400,
}
TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".html": "text/html"}
STOP_SECONDS = 5.0  # for runs to reach their next entry
FOLDERS = ("", "views/", "vendor/")


def inspector(
    store: SessionStore,
    *,
    token: str | None = None,
    path: str = "",
    hosts: Iterable[str] = (),
    read_only: bool = False,
    open_model: OpenModel | None = None,
    make_agent: MakeAgent | None = None,
    place: str = "",
) -> web.Application:
    """Return the inspector of a store as an application, alone or for `add_subapp(path, …)` of another one.

    `path` is where it is mounted, such as `/inspect`; empty where it stands alone. A client with the `token` can read
    everything in the store and, unless it is `read_only`, write; other clients are refused. `hosts` are names beside
    loopback by which browsers reach this server. `open_model` makes a model for requests that are shown, `make_agent`
    the agent for what is said in the page; without it the page can only speak to runs under way. `place` says in the
    page where the store is.
    """
    access = Access(token or secrets.token_urlsafe(24), path=path, hosts=hosts)
    application = web.Application(middlewares=[access.check, _tell_errors])
    state = application[STATE] = InspectorState(
        store, is_read_only=read_only, open_model=open_model or _unsent_model, make_agent=make_agent, place=place
    )
    router = application.router
    add_sessions(router)
    add_reading(router)
    add_actions(router)

    async def page(request: web.Request) -> web.Response:
        return web.Response(text=_index(path, access.key_for(request)), content_type="text/html")

    access.open_handlers |= {page, _static}
    for place_of_page in ("/", "/s/{rest:.*}"):
        router.add_get(place_of_page, page)
    if path:
        router.add_get("", page)
    router.add_get("/static/{name:.+}", _static)

    async def end_runs(_application: web.Application) -> AsyncIterator[None]:
        yield
        runs = list(state.runs.values())
        if not runs:
            return
        pausing = [asyncio.ensure_future(agent.pause()) for agent, _ in runs]
        tasks = [*pausing, *(task for _, task in runs)]
        _, late = await asyncio.wait(tasks, timeout=STOP_SECONDS)
        for task in late:  # a run that is left in the middle of an answer is taken up again, as after a crash
            task.cancel()
        await asyncio.wait(tasks)

    async def end_jobs(_application: web.Application) -> None:
        state.jobs.stop()

    application.on_shutdown.append(end_jobs)
    application.cleanup_ctx.append(end_runs)
    return application


@web.middleware
async def _tell_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn errors of ours into JSON. What is no error of ours says its type alone: its text may hold what was said."""
    try:
        return await handler(request)
    except DragomanError as error:
        return refuse(STATUS.get(error.code, 500), str(error.code), str(error))
    except web.HTTPException as error:
        return refuse(error.status, "http", error.reason)
    except (ConnectionError, asyncio.CancelledError):
        raise
    except Exception as error:  # noqa: BLE001  # the page must learn that something went wrong
        return refuse(500, "internal", f"this is a mistake in dragoman itself ({type(error).__name__})")


async def _static(request: web.Request) -> web.Response:
    """Answer with a file of the page."""
    name = request.match_info["name"]
    if name not in _static_names():
        return refuse(404, "not_found", "the page has no such file")
    data = files(__package__).joinpath("page", *name.split("/")).read_bytes()
    suffix = name[name.rindex(".") :]
    return web.Response(body=data, content_type=TYPES[suffix], charset="utf-8")


def _unsent_model(name: str) -> Model:
    """A model as its requests are written down: no key is looked for."""
    from ...models import model

    provider, model_id = split_name(name)
    endpoint: dict[str, Any] = {"region": "region", "project": "project"}
    if provider != LOCAL and not find_dialect(provider, model_id).base_url:
        endpoint["base_url"] = "https://your-base-url.invalid"
    return model(name) if provider == LOCAL else model(name, **endpoint)


def _index(path: str, key: str) -> str:
    text = files(__package__).joinpath("page", "index.html").read_text("utf-8")
    return text.replace("{{base}}", escape(f"{path}/", quote=True)).replace("{{key}}", key)


@cache
def _static_names() -> frozenset[str]:
    """The files of the page, by their names below `static/`."""
    page = files(__package__).joinpath("page")
    found = set()
    for folder in FOLDERS:
        place = page.joinpath(folder) if folder else page
        if place.is_dir():
            found |= {f"{folder}{each.name}" for each in place.iterdir() if each.name[each.name.rfind(".") :] in TYPES}
    return frozenset(found)
