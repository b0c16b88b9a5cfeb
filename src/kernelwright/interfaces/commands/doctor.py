"""`kernelwright doctor`: what works on this machine, and how to get what does not."""

from __future__ import annotations

from kernelwright.core.errors import ExitCode
from kernelwright.interfaces.capabilities import Capability, capabilities
from kernelwright.interfaces.output import Output

_NAME_WIDTH = 22


def doctor(output: Output, *, measure: bool) -> ExitCode:
    """Print the capabilities; 3 when one is missing that the main job needs."""
    found = capabilities(measure=measure)
    missing = [c.name for c in found if c.needed and not c.available]
    if output.as_json:
        output.answer(
            {
                "ready": not missing,
                "capabilities": {c.name.replace(" ", "_"): c.model_dump(exclude={"name"}) for c in found},
            }
        )
    else:
        for capability in found:
            for line in _lines(capability):
                output.say(line)
        output.say()
        output.say(f"not ready: {', '.join(missing)} missing" if missing else "ready")
    return ExitCode.ENVIRONMENT if missing else ExitCode.OK


def _lines(capability: Capability) -> list[str]:
    import textwrap

    mark = "ok" if capability.available else "MISSING" if capability.needed else "no"
    words = [capability.version or ""] if capability.available else [capability.why_not or ""]
    if capability.how_to_get:
        words.append(f"to get it: {capability.how_to_get}")
    indent = " " * (_NAME_WIDTH + 9)
    lines: list[str] = []
    for text in words:
        lines += textwrap.wrap(text, 80 - len(indent)) or [""]
    head = f"{capability.name:<{_NAME_WIDTH}} {mark:<8}"
    return [f"{head}{lines[0]}".rstrip(), *(f"{indent}{line}" for line in lines[1:])]
