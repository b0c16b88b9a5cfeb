"""A client for any endpoint that speaks OpenAI's chat completions. The SDK is imported on first use."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Any

from kernelwright.agents.model.client import Answer, CallFailure, Completion, FailureKind, Finish, ModelRequest
from kernelwright.core.errors import EnvironmentProblem, UsageError
from kernelwright.core.text import strip_escapes, trimmed

KEY_VARIABLE = "OPENAI_API_KEY"
ADDRESS_VARIABLE = "OPENAI_BASE_URL"
ATTEMPTS = 5
"""Tries of one call, as far as its deadline allows."""
FIRST_PAUSE_SECONDS = 0.5
"""Doubles with each try, unless the server names a time (`Retry-After`)."""

_FINISH: dict[str, Finish] = {"stop": "stop", "length": "length"}


class OpenAIClient:
    """Reads `OPENAI_API_KEY` and `OPENAI_BASE_URL` when it is made; keeps the key out of every text it returns."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        """Raises EnvironmentProblem where the SDK or the key is missing."""
        values = os.environ if environment is None else environment
        try:
            import openai
        except ImportError as error:
            raise EnvironmentProblem(
                "a language model needs the openai package", hint="pip install 'kernelwright[llm]'"
            ) from error
        if openai.__version__.split(".")[0] != "3":
            raise EnvironmentProblem(
                f"expected openai 3, found {openai.__version__}", hint="pip install 'kernelwright[llm]'"
            )
        key = values.get(KEY_VARIABLE, "")
        if not key:
            raise EnvironmentProblem(
                f"{KEY_VARIABLE} is not set",
                hint=f"export {KEY_VARIABLE}; a local server that asks for no key takes any text, with "
                f"{ADDRESS_VARIABLE} as its address; --replay FILE needs neither",
            )
        self._key = key
        self._address = values.get(ADDRESS_VARIABLE) or None
        self._limit_name = "max_tokens"
        self._takes_temperature = True

    def __repr__(self) -> str:
        return f"OpenAIClient({self._address or 'default address'})"

    def complete(self, request: ModelRequest, *, deadline: float) -> Answer:
        """Ask once, retrying what may pass, and give up after `deadline` seconds.

        Raises:
            EnvironmentProblem: the key is not accepted.
            UsageError: the endpoint does not know the model.
        """
        return asyncio.run(self._within(request, deadline))

    async def _within(self, request: ModelRequest, deadline: float) -> Answer:
        # The SDK's own timeout bounds each read, not the call: a server that drips would never end it.
        last: list[CallFailure] = []
        try:
            async with asyncio.timeout(deadline):
                return await self._with_retries(request, last)
        except TimeoutError:
            after = f" after {last[-1].reason}" if last else ""
            return CallFailure(failure="timed_out", reason=f"no answer within {deadline:g} s{after}")

    async def _with_retries(self, request: ModelRequest, last: list[CallFailure]) -> Answer:
        import openai

        async with openai.AsyncOpenAI(api_key=self._key, base_url=self._address, max_retries=0, timeout=None) as client:
            pause = FIRST_PAUSE_SECONDS
            for attempt in range(1, ATTEMPTS + 1):
                wait: float | None = None
                try:
                    return self._completion(await self._ask(client, request))
                except openai.APIStatusError as error:
                    if self._adapted(error):
                        continue
                    failure = self._status(request, error)
                    wait = _retry_after(error)
                except openai.APIConnectionError as error:
                    failure = self._failure("unreachable", f"{type(error).__name__}: {error.__cause__ or error}")
                except (openai.OpenAIError, ValueError, TypeError, AttributeError, LookupError) as error:
                    # A body that is not what the protocol says surfaces in the SDK as any of these.
                    failure = self._failure("bad_response", f"{type(error).__name__}: {error}")
                if failure.failure in {"refused", "bad_response"} or attempt == ATTEMPTS:
                    return failure
                last.append(failure)
                await asyncio.sleep(pause if wait is None else wait)
                pause *= 2
        return self._failure("refused", "the endpoint takes none of the options that were tried")

    async def _ask(self, client: Any, request: ModelRequest) -> Any:
        options: dict[str, Any] = {self._limit_name: request.max_output_tokens}
        if self._takes_temperature:
            options["temperature"] = request.temperature
        return await client.chat.completions.create(
            model=request.model,
            messages=[{"role": m.role, "content": m.content} for m in request.messages],
            **options,
        )

    def _adapted(self, error: Any) -> bool:
        """Whether the endpoint named an option that it does not take, and the next try does without it.

        Endpoints differ in the name of the output limit, and some models take no temperature.
        """
        if error.status_code != 400:
            return False
        named = f"{error.param or ''} {error.message}"
        if "max_tokens" in named and self._limit_name == "max_tokens":
            self._limit_name = "max_completion_tokens"
            return True
        if "temperature" in named and self._takes_temperature:
            self._takes_temperature = False
            return True
        return False

    def _completion(self, response: Any) -> Answer:
        if not getattr(response, "choices", None):
            return self._failure("bad_response", "the answer has no choices")
        choice = response.choices[0]
        if choice.message.refusal or choice.finish_reason == "content_filter":
            return self._failure(
                "refused", choice.message.refusal or "the endpoint's content filter held the answer back"
            )
        if not isinstance(choice.message.content, str):
            return self._failure("bad_response", "the answer has no text")
        usage = response.usage
        return Completion(
            text=choice.message.content.replace(self._key, "[key]"),
            input_tokens=usage.prompt_tokens if usage else None,
            output_tokens=usage.completion_tokens if usage else None,
            finish=_FINISH.get(choice.finish_reason or "", "other"),
        )

    def _status(self, request: ModelRequest, error: Any) -> CallFailure:
        reason = f"HTTP {error.status_code}: {error.message}"
        match error.status_code:
            case 401 | 403:
                raise EnvironmentProblem(
                    f"the model's endpoint does not accept {KEY_VARIABLE}: {self._clean(reason)}",
                    hint=f"check {KEY_VARIABLE} and {ADDRESS_VARIABLE}",
                ) from None
            case 404:
                raise UsageError(
                    f"the endpoint does not know the model {request.model!r}: {self._clean(reason)}",
                    hint=f"check --model and {ADDRESS_VARIABLE}",
                ) from None
            case 408:
                return self._failure("server_error", reason)
            case 429:
                return self._failure("rate_limited", reason)
            case status if status >= 500:
                return self._failure("server_error", reason)
        return self._failure("refused", reason)

    def _failure(self, kind: FailureKind, reason: str) -> CallFailure:
        return CallFailure(failure=kind, reason=self._clean(reason))

    def _clean(self, text: str) -> str:
        return trimmed(strip_escapes(text).replace(self._key, "[key]"), limit=500)


def _retry_after(error: Any) -> float | None:
    try:
        seconds = float(error.response.headers.get("retry-after", ""))
    except ValueError:
        return None
    return max(0.0, seconds)
