"""`dragoman serve`: other people's clients on any model, each conversation recorded.

This module takes requests, finds out what they want, and tells failures in the client's own API. `exchange` has what
becomes of a request for an answer.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlencode

import msgspec
from aiohttp import web

from ...errors import DragomanError, ErrorCode, InvalidValue, ModelError, UnreadableData, report_raised
from ...store.refusals import require_new_session_id
from ...wire import WIRE_APIS
from .access import Access
from .asked import Asked
from .bodies import Bodies, expect_nothing
from .delivery import Delivery
from .exchange import STOPPED, Exchange
from .fronts import FRONTS, GEMINI, Wanted, find_wanted, is_plain_path, name_client, name_conversation
from .keys import DailyUse, Keys, ServeKey
from .listing import counted, find_use, listed
from .metrics import CONTENT_TYPE, Metrics
from .observing import Observed, Observer
from .opening import can_pass
from .passing import PassedAnswer, fetch_whole, other_request, passed_request
from .reading import read_conversation, read_head
from .recorder import Recorder
from .refusals import nothing_there, refuse
from .responses import (
    delete_response,
    find_response,
    find_stream,
    require_own_response,
    unknown_response,
    with_previous,
)

if TYPE_CHECKING:
    from ...models import Model
    from ...store import SessionStore
    from ...telemetry import Telemetry
    from .replay import Replay
    from .routes import Routes

__all__ = ["Gateway", "GatewaySettings"]

STOP_SECONDS = 4.0  # for the ends of the answers under way
SETTLE_SECONDS = 1.5  # for what is still being recorded then
BODIES = 4  # of the largest size, held at once
SESSION_HEADER = "x-dragoman-session"
LONGEST_MODEL = 200  # characters of a name: it is in a header, in the log and in the metrics


class GatewaySettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a gateway works. `fold` is the budget of tokens that contexts are kept in.

    Without `translates` requests are forwarded and recorded, and none goes to another API. With `passes_others` what
    has no front goes to the vendor of its API, unrecorded. `body_seconds` is what the body of a request may take longer
    than a slow line. `hosts` are names that requests may be addressed to, beside those of loopback. After
    `silence_seconds` without bytes a stream gets a sign of life; None is 15 seconds.
    """

    fold: int | None = None
    translates: bool = True
    passes_others: bool = False
    body_limit: int = 64 << 20
    body_seconds: float = 60.0
    answers_at_once: int = 200
    hosts: frozenset[str] = frozenset()
    silence_seconds: float | None = None


class Gateway:
    """A server of the fronts. `open_model` gives the model of a name such as `anthropic:claude-…`."""

    def __init__(
        self,
        store: "SessionStore",
        routes: "Routes",
        open_model: "Callable[[str], Model]",
        *,
        keys: Keys | None = None,
        settings: GatewaySettings | None = None,
        replay: "Replay | None" = None,
        telemetry: "Telemetry | None" = None,
    ) -> None:
        self.metrics = Metrics()
        self._observer = Observer(self.metrics, telemetry)
        self._store = store
        self._recorder = Recorder(store)
        self._routes = routes
        self._open_model = open_model
        self._models: dict[str, Model] = {}
        self._settings = settings or GatewaySettings()
        self._access = Access(keys or Keys([]), self._settings.hosts)
        self._use = DailyUse()
        limit = self._settings.body_limit
        self._bodies = Bodies(limit, BODIES * limit, patience=self._settings.body_seconds)
        self.metrics.held = lambda: self._bodies.held
        self._replay = replay
        self._tasks: set[asyncio.Task[Any]] = set()
        self._under_way: dict[asyncio.Task[Any], Exchange] = {}
        self.is_stopping = False

    def application(self, beside: Mapping[str, web.Application] | None = None) -> web.Application:
        """Return the application. `web.serving` runs it as it must be run: a client that leaves ends what it asked.

        `beside` are other applications by their paths, such as the inspector.
        """
        application = web.Application()
        for path, other in (beside or {}).items():
            application.add_subapp(path, other)
        application.router.add_route("*", "/{path:.*}", self.handle, expect_handler=expect_nothing)
        return application

    async def stop(self) -> None:
        """Take no more requests, and end the answers under way with an error of their API."""
        self.is_stopping = True
        tasks = tuple(self._tasks)
        for task in tasks:
            exchange = self._under_way.get(task)
            if exchange is not None:
                exchange.is_stopping = True
            if exchange is None or not exchange.is_ending:
                task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=STOP_SECONDS)
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_SECONDS):
                await self._recorder.settle()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer a request. Every failure has the form of the client's API."""
        headers = {name.lower(): value for name, value in request.headers.items()}
        wanted = find_wanted(request.method, request.rel_url.raw_path, headers)
        if joined := headers.get(SESSION_HEADER):
            wanted = msgspec.structs.replace(wanted, session_id=unquote(joined))
        seen, status, task = self._observer.begin(request.method, wanted, headers), None, asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            response = await self._respond(request, wanted, headers, seen)
            status = response.status
            return response
        finally:
            self._tasks.discard(task)
            if wanted.action != "health" or status != 200:
                seen.end(status)

    async def _respond(
        self, request: web.Request, wanted: Wanted, headers: dict[str, str], seen: Observed
    ) -> web.StreamResponse:
        try:
            # Without the field, aiohttp would ask the system for the name of this machine, which may take seconds.
            host = request.host if len(request.headers.getall("host", ())) == 1 else ""
            self._access.require_host(host, headers.get("origin"))
            if wanted.action == "health":
                return web.json_response({"status": "stopping" if self.is_stopping else "ok"})
            key = self._access.require_key(headers, request.query)
            seen.key_name = key.name
            if wanted.session_id:
                require_new_session_id(wanted.session_id, "the name of a session")
            return await self._dispatch(request, wanted, headers, key, seen)
        except ConnectionError:
            raise  # the client has gone
        except asyncio.CancelledError:
            if not self.is_stopping or seen.has_begun or request.transport is None:
                raise
            return refuse(wanted.api, ModelError(STOPPED, code=ErrorCode.OVERLOADED))
        except (UnreadableData, InvalidValue) as error:
            return refuse(wanted.api, ModelError(str(error), code=ErrorCode.INVALID_REQUEST))
        except DragomanError as error:
            return refuse(wanted.api, error)
        except Exception as error:  # a bug of ours is an answer too
            if seen.has_begun:
                raise  # its head has gone out
            report_raised(error, "the gateway")
            return refuse(wanted.api, ModelError("the gateway failed", code=ErrorCode.INTERNAL))

    # ------------------------------------------------------------ what is wanted

    async def _dispatch(
        self, request: web.Request, wanted: Wanted, headers: dict[str, str], key: ServeKey, seen: Observed
    ) -> web.StreamResponse:
        match wanted.action:
            case "metrics":
                return web.Response(body=self.metrics.page().encode(), headers={"content-type": CONTENT_TYPE})
            case "models" | "model":
                return web.json_response(listed(self._routes, wanted))
            case "stored" | "delete":
                return await self._stored(wanted, key, request.query)
            case "answer" | "count":
                async with self._bodies.of(request) as body:
                    asked = await self._asked(wanted, headers, request, body, key)
                    if wanted.action == "count":
                        return await self._count(asked, headers)
                    if self._replay is not None:
                        seen.way = "replayed"
                        return await self._replayed(asked)
                    with self._place_for(key):
                        return await self._answer(request, asked, headers, key, seen)
            case _:
                return await self._other(request, wanted, headers, key)

    async def _asked(
        self, wanted: Wanted, headers: Mapping[str, str], request: web.Request, body: bytes, key: ServeKey
    ) -> Asked:
        front = FRONTS[wanted.api]
        head = await read_head(body)
        model = wanted.model or head.model or ""
        if not model:
            raise UnreadableData("the request names no model")
        if len(model) > LONGEST_MODEL:
            raise UnreadableData(f"the model's name has {len(model):,} characters: at most {LONGEST_MODEL} are taken")
        is_stream = bool(head.stream) if wanted.is_stream is None else wanted.is_stream
        read, problem = await read_conversation(front.api, body, model=model, is_stream=is_stream)
        query = [(name, value) for name, value in parse_qsl(request.query_string) if name != "key"]
        return Asked(
            api=front.api,
            path=wanted.path,
            query=urlencode(query),
            model=model,
            body=body,
            headers={name: headers[name] for name in front.headers if name in headers},
            read=read,
            problem=problem,
            is_stream=is_stream,
            client=name_client(front, headers),
            key_name=key.name,
            conversation=name_conversation(headers, head.metadata),
            session_id=wanted.session_id,
            previous=head.previous_response_id or "",
        )

    @contextmanager
    def _place_for(self, key: ServeKey) -> Iterator[None]:
        """Count an answer, as long as it takes, and a request of the key; raise ModelError where it is one too many."""
        if self.is_stopping:
            raise ModelError(STOPPED, code=ErrorCode.OVERLOADED)
        limit = self._settings.answers_at_once
        if self.metrics.under_way >= limit:
            message = f"{limit} answers are under way, and this gateway takes no more at once"
            raise ModelError(message, code=ErrorCode.OVERLOADED, retry_after=1.0)
        self._use.admit(key)
        self.metrics.under_way += 1
        try:
            yield
        finally:
            self.metrics.under_way -= 1

    async def _answer(
        self, request: web.Request, asked: Asked, headers: dict[str, str], key: ServeKey, seen: Observed
    ) -> web.StreamResponse:
        models = [partial(self._model, name) for name in self._routes.find(asked.model, asked.api)]
        front, task = FRONTS[asked.api], asyncio.current_task()
        assert task is not None
        if asked.read is None and not any(can_pass(asked, each(), front) for each in models):
            assert asked.problem is not None
            raise asked.problem
        if asked.session_id and not self._settings.translates:
            message = "this gateway only forwards requests: it adds nothing of a session, and none can be joined"
            raise ModelError(message, code=ErrorCode.UNSUPPORTED)
        asked = await with_previous(self._store, asked)
        turn = await self._recorder.begin(asked)
        seen.session_id = turn.session_id
        delivery = Delivery(request, front, is_stream=asked.is_stream, silence=self._settings.silence_seconds)
        exchange = Exchange(
            asked,
            front,
            headers,
            turn=turn,
            delivery=delivery,
            seen=seen,
            fold=self._settings.fold,
            translates=self._settings.translates,
        )
        self._under_way[task] = exchange
        try:
            return await exchange.run(models)
        finally:
            del self._under_way[task]
            delivery.stop()
            seen.note(exchange, turn, delivery)
            used = find_use(asked, exchange.assembly, exchange.model) if key.is_limited else None
            for usage in (used, *(attempt.usage for attempt in exchange.failed)):
                self._use.add(key, usage)

    async def _count(self, asked: Asked, headers: Mapping[str, str]) -> web.Response:
        """Count tokens: the vendor does, where it speaks the client's API; else they are estimated."""
        target = self._routes.find(asked.model, asked.api)[0]
        model = self._model(target) if self._replay is None else None
        if model is not None and can_pass(asked, model, FRONTS[asked.api]):
            suffix = ":countTokens" if asked.api == GEMINI else "/count_tokens"
            wire = passed_request(model, asked.body, headers, asked=asked.model, suffix=suffix, query=asked.query)
            if wire is not None:
                answer = PassedAnswer(model, wire, asked=asked.model, is_stream=False)
                try:
                    refused = await answer.open()
                    told = answer.refusal() if refused is not None else b"".join([p async for p in answer.pieces()])
                    if told is not None and answer.status not in (404, 405, 501):
                        return web.Response(status=answer.status, headers=answer.headers, body=told)
                finally:
                    await answer.close()
        if asked.read is None:
            assert asked.problem is not None
            raise asked.problem
        return web.json_response(counted(asked.read, asked.api))

    async def _stored(self, wanted: Wanted, key: ServeKey, query: Mapping[str, str]) -> web.Response:
        is_stream = wanted.action == "stored" and query.get("stream") == "true"
        if is_stream and query.get("starting_after"):
            message = "a recorded stream is told from its beginning: 'starting_after' is not supported"
            raise ModelError(message, code=ErrorCode.UNSUPPORTED)
        find = find_stream if is_stream else find_response if wanted.action == "stored" else delete_response
        body = await find(self._store, wanted.target, key.name)
        if body is None:
            raise unknown_response(wanted.target)
        return web.Response(body=body, content_type="text/event-stream" if is_stream else "application/json")

    async def _replayed(self, asked: Asked) -> web.Response:
        assert self._replay is not None
        found = await self._replay.find(asked)
        return web.Response(status=found.status, headers=found.headers, body=found.body)

    async def _other(
        self, request: web.Request, wanted: Wanted, headers: Mapping[str, str], key: ServeKey
    ) -> web.Response:
        """Pass what has no front to the vendor of its API, where that is asked for."""
        if not self._settings.passes_others or self._replay is not None:
            message = f"this gateway has nothing at {request.method} {wanted.path[:200]}"
            raise nothing_there(message)
        if not is_plain_path(wanted.path):
            raise nothing_there("a path is passed on only in its plain spelling")
        if wanted.target:
            await require_own_response(self._store, wanted.target, key.name)
        model = self._model(f"{WIRE_APIS[wanted.api].providers[0]}:any")
        query = urlencode([(name, value) for name, value in request.query.items() if name != "key"])
        self._use.admit(key)
        async with self._bodies.of(request) as body:
            wire = other_request(model, request.method, wanted.path, headers, body, query=query)
            status, told, answer = await fetch_whole(model, wire)
        return web.Response(status=status, headers=told, body=answer)

    def _model(self, name: str) -> "Model":
        model = self._models.get(name)
        if model is None:
            if len(self._models) > 1_000:  # names come from clients
                self._models.clear()
            model = self._models[name] = self._open_model(name)
        return model
