"""The chat itself: a line is read, it is a command or something to say, the reply is drawn, and so on until the end."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from ..._jsontext import decode_json, encode_json
from ...agent import QuestionAskedEvent, RunEvent, RunResult
from ...errors import DragomanError, InvalidValue, redact
from ...history import AgentStatus, OpenCall
from ...message import ToolCall
from ...store import SessionBusy
from ..advice import advice_after, with_advice
from ..output import Output, one_line, safe_json, wrapped
from .busy import settle_busy
from .input import Editor, Interrupted, holds_secret
from .questions import ask_question
from .status import status_words
from .talk import Talk
from .view import ReplyView, call_words

__all__ = ["Chat", "Leave"]

PROMPT = "> "


class Leave(Exception):
    """The person wants to go."""


class Chat:
    """A chat at a terminal. `prints_status`: print the status after each reply, because it has no line of its own."""

    def __init__(
        self, talk: Talk, view: ReplyView, editor: Editor, output: Output, *, prints_status: bool = False
    ) -> None:
        self.talk = talk
        self.view = view
        self.editor = editor
        self.output = output
        self._prints_status = prints_status
        self._status: str | None = None

    async def run(self, first: str | None = None) -> None:
        """Talk until the person leaves."""
        await self._attempt(self._pick_up)
        if first is not None:
            await self._attempt(lambda: self.reply(first))
        was_interrupted = False
        while True:
            try:
                line = await self.editor.read(PROMPT, status=self.status)
            except Interrupted:
                if was_interrupted:
                    break
                was_interrupted = True
                self.tell("(Ctrl-C again, or Ctrl-D, to leave)")
                continue
            was_interrupted = False
            if line is None:
                break
            try:
                await self._attempt(lambda line=line: self._take(line))
            except Leave:
                break
        self._say_goodbye()

    def tell(self, text: str, style: str = "dim") -> None:
        """Print a remark, broken at words."""
        for line in wrapped(one_line(text), self.output.width - 1):
            self.output.line(line, style)

    def status(self) -> str:
        """Return the status line; what it is made of changes with each reply, not with each key."""
        if self._status is None:
            self._status = status_words(self.talk)
        return self._status

    def changed(self) -> None:
        """Say that the status is another."""
        self._status = None

    def toggle_thinking(self) -> None:
        """Fold or unfold what models think; unfolded, the last of it is shown."""
        if self.view.fold():
            self.tell("thinking is folded to one line")
            return
        self.tell("thinking is shown")
        thought = self.talk.last_thinking()
        if thought:
            self.output.indented(thought, "dim", by=2)

    # ------------------------------------------------------------ a reply

    async def reply(self, text: str | None) -> None:
        """Say something, or carry on; draw the reply, and ask about calls until none waits for a decision."""
        while True:
            try:
                result = await self._one_reply(text)
                break
            except SessionBusy as busy:
                if not await settle_busy(self, busy.lease):
                    return
        while result.status is AgentStatus.AWAITING_HUMAN and await self.ask_approvals():
            result = await self._one_reply(None)
        if result.status is AgentStatus.ABORTED:
            self.tell("stopped: what had come is kept", "yellow")
        elif result.status is AgentStatus.FAILED and result.error is not None:
            again = "/retry asks again" if self.talk.is_unfinished else ""
            advice = advice_after(self.talk, result.error.code)
            self.tell(with_advice(advice, again) if advice else again)
        self.changed()
        if self._prints_status:
            self.tell(f"[{self.status()}]")
        self.output.line()

    async def _one_reply(self, text: str | None) -> RunResult[str]:
        run = await self.talk.say(text)
        self.view.begin()
        stopping: list[asyncio.Task[Any]] = []

        def stop() -> None:
            if not stopping:
                stopping.append(asyncio.ensure_future(run.abort()))

        events = run.events()
        try:
            while True:
                with self.editor.watching(stop, self.view.fold):
                    question = await self._draw(events)
                    if question is None:
                        return await run.result()
                self.view.end()
                await ask_question(self, question)
                self.view.begin()
        finally:
            self.view.end()
            self.output.flush()

    async def _draw(self, events: AsyncIterator[RunEvent]) -> QuestionAskedEvent | None:
        """Draw what comes, up to a question of a tool; None at the end."""
        async for event in events:
            self.view.show(event)
            if isinstance(event, QuestionAskedEvent):
                return event
        return None

    # ------------------------------------------------------------ approval

    async def ask_approvals(self) -> bool:
        """Ask about each call that waits; return whether all are answered. Ctrl-C leaves them open."""
        for call in self.talk.pending:
            try:
                if not await self._ask(call):
                    return False
            except Interrupted:
                self.tell("left open: /approve and /deny answer it")
                return False
        return True

    async def _ask(self, call: OpenCall) -> bool:
        name = one_line(call.request.tool_name)
        self.output.line(f"{name}: {call_words(call.request)}", "magenta")
        while True:
            answer = await self.editor.ask(f"Run {name}? [y]es, [n]o, [e]dit:")
            match (answer or "").strip().lower():
                case "" if answer is None:
                    return False
                case "y" | "yes":
                    await self.talk.agent.approve(call.tool_call_id)
                    return True
                case "n" | "no":
                    reason = await self.editor.ask("Why not? (for the model; may be empty)")
                    await self.talk.agent.deny(call.tool_call_id, reason=reason or "")
                    return True
                case "e" | "edit":
                    if await self._edit(call.request):
                        return True
                case _:
                    self.tell("y, n or e")

    async def _edit(self, call: ToolCall) -> bool:
        written = safe_json(encode_json(call.arguments or {}).decode())
        typed = await self.editor.ask("Arguments:", default=written)
        if typed is None:
            return False
        try:
            await self.talk.agent.approve(call.tool_call_id, arguments=read_arguments(typed))
        except DragomanError as error:
            self.tell(str(error), "red")
            return False
        return True

    # ------------------------------------------------------------ steps

    async def _take(self, line: str) -> None:
        from .commands import find_command

        text = line.strip()
        if not text:
            return
        command, argument = find_command(text)
        if command is not None:
            await command.run(self, argument)
            return
        said = await self._without_secret(line)
        if said is not None:
            await self.reply(said)

    async def _without_secret(self, line: str) -> str | None:
        """The line, or what the person wants instead if it seems to hold a key; None to say nothing."""
        if not holds_secret(line):
            return line
        try:
            answer = await self.editor.ask("This looks like a key or a password. [s]end it, [b]lank it out, [d]rop it:")
        except Interrupted:
            return None
        match (answer or "").strip().lower():
            case "s" | "send":
                return line
            case "b" | "blank":
                return redact(line)
        self.tell("dropped")
        return None

    async def _pick_up(self) -> None:
        """Say where an opened session stands, and go on with what waits for a person."""
        session = self.talk.session
        lease = await session.store.find_lease(session.session_id) if session is not None else None
        if lease is not None and not await settle_busy(self, lease):
            return
        if self.talk.pending:
            self.tell("calls of the last run wait for an answer", "yellow")
            if await self.ask_approvals():
                await self.reply(None)
        elif self.talk.is_unfinished:
            self.tell("the last answer was cut off: /retry asks for it again", "yellow")

    async def _attempt(self, step: Any) -> None:
        """Do something; what a person, a provider or a disk did wrong is said, and the chat goes on."""
        try:
            await step()
        except DragomanError as error:
            self.tell(f"✗ {error}", "red")
        except OSError as error:
            self.tell(f"✗ {error.strerror or type(error).__name__}", "red")

    def _say_goodbye(self) -> None:
        session = self.talk.session
        if session is not None:
            self.tell(f"kept: dragoman chat -s {session.session_id} goes on")


def read_arguments(text: str) -> dict[str, Any]:
    """Return what was typed as the arguments of a call; raise InvalidValue if that is no JSON object."""
    try:
        value = decode_json(text)
    except DragomanError:
        value = None
    if not isinstance(value, dict):
        raise InvalidValue('arguments are a JSON object, such as {"path": "a.txt"}')
    return value
