"""Messages between the judge, its server and the runners: length-prefixed JSON over a Unix socket, with descriptors.

What a runner sends is untrusted: it is bounded in length, plain JSON, and never unpickled.
"""

from __future__ import annotations

import array
import contextlib
import json
import select
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any

LARGEST_BYTES = 64 << 20
"""Longest message that is accepted (a lifted candidate's source text may be long)."""
_PREFIX = struct.Struct("<I")
_MOST_DESCRIPTORS = 16

Message = dict[str, Any]


class Closed(Exception):
    """The other side is gone."""


class Garbled(Exception):
    """What came is no message: too long, no JSON, no object."""


class Channel:
    """One end of a connected Unix stream socket."""

    def __init__(self, end: socket.socket) -> None:
        self.socket = end
        self._buffer = bytearray()
        self.descriptors: list[int] = []
        """Descriptors that came along and were not taken yet."""

    def fileno(self) -> int:
        """The descriptor to poll for input."""
        return self.socket.fileno()

    def send(self, message: Message, descriptors: Sequence[int] = ()) -> None:
        """Send one message.

        Raises:
            Closed: nobody will ever read it.
        """
        body = json.dumps(message, separators=(",", ":")).encode()
        data = memoryview(_PREFIX.pack(len(body)) + body)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        try:
            sent = self.socket.sendmsg([data], rights)
            if sent < len(data):
                self.socket.sendall(data[sent:])
        except OSError as error:
            raise Closed(str(error)) from error

    def receive(self) -> Message:
        """Wait for one message.

        Raises:
            Closed: the other side is gone. Garbled: what came is no message.
        """
        while (message := self.waiting()) is None:
            self.read()
        return message

    def receive_until(self, deadline: float) -> Message | None:
        """The next message, or None when `deadline` (of `time.monotonic`) has passed.

        Raises:
            Closed, Garbled: as `receive`.
        """
        while (message := self.waiting()) is None:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.socket], [], [], left)[0]:
                return None
            self.read()
        return message

    def waiting(self) -> Message | None:
        """A message that has arrived completely, if there is one.

        Raises:
            Garbled: what came is no message.
        """
        if len(self._buffer) < _PREFIX.size:
            return None
        (length,) = _PREFIX.unpack_from(self._buffer)
        if length > LARGEST_BYTES:
            raise Garbled(f"a message of {length} bytes")
        end = _PREFIX.size + length
        if len(self._buffer) < end:
            return None
        body = bytes(self._buffer[_PREFIX.size : end])
        del self._buffer[:end]
        try:
            message = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise Garbled("not JSON") from error
        if not isinstance(message, dict):
            raise Garbled("not an object")
        return message

    def read(self) -> None:
        """Take what has arrived (blocks until something has).

        Raises:
            Closed: the other side is gone.
        """
        size = array.array("i").itemsize
        try:
            data, ancillary, _, _ = self.socket.recvmsg(
                1 << 16, socket.CMSG_SPACE(_MOST_DESCRIPTORS * size), socket.MSG_CMSG_CLOEXEC
            )
        except OSError as error:
            raise Closed(str(error)) from error
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                received = array.array("i")
                received.frombytes(content[: len(content) - len(content) % size])
                self.descriptors += received
        if not data:
            raise Closed("end of stream")
        self._buffer += data

    def take_descriptors(self) -> list[int]:
        """The descriptors that came so far; the caller owns them."""
        taken, self.descriptors = self.descriptors, []
        return taken

    def close(self) -> None:
        """Close this end."""
        with contextlib.suppress(OSError):
            self.socket.close()
