"""Delivery by e-mail: one message of plain text over SMTP. An id is the same Message-ID whenever it is sent."""

from __future__ import annotations

import email.policy
import json
import smtplib
import socket
import ssl
import threading
from contextlib import suppress
from datetime import UTC, datetime
from email.message import EmailMessage
from typing import Any, BinaryIO

from fedplcc.gateway.messages.message import Message
from fedplcc.gateway.messages.receivers import Mail, Receiver
from fedplcc.gateway.messages.undelivered import SEND_S, Undelivered

SILENCE_S = 10.0
"""Longest wait for a connection, and longest silence in it."""
POLICY = email.policy.SMTP.clone(cte_type="7bit")
"""Form of e-mails: ASCII on the wire, whatever the server says of itself; a line feed in a header is an error."""
MAX_ANSWER_BYTES = 64 << 10
"""Most bytes that are read of a server's answers."""


def letter_of(mail: Mail, message_id: str, message: Message) -> EmailMessage:
    """Return the e-mail about an event. Its headers hold nothing that another process wrote but names."""
    letter = EmailMessage(policy=POLICY)
    about = message.event.run_id or message.event.client_id
    letter["Subject"] = f"fedplcc: {message.kind.value.replace('_', ' ')}{f', {about}' if about else ''}"
    letter["From"], letter["To"] = mail.sender, ", ".join(mail.to)
    letter["Date"] = datetime.fromtimestamp(message.event.time, UTC)
    letter["Message-ID"] = f"<{message_id}@{mail.sender.rpartition('@')[2]}>"
    letter["Auto-Submitted"] = "auto-generated"
    facts = "".join(f"{name}: {json.dumps(value)}\n" for name, value in message.document["data"].items())
    letter.set_content(f"{message.sentence}.\n\n{facts}time: {message.document['timestamp']}\n")
    return letter


def send(receiver: Receiver, mail: Mail, message_id: str, message: Message) -> None:
    """Send an e-mail once, in at most about `SEND_S`; blocks.

    Raises:
        Undelivered: The server did not take it for each address.
    """
    letter = letter_of(mail, message_id, message)
    server = _Server(mail, receiver.tls)
    end = threading.Timer(SEND_S, server.cut)
    end.daemon = True
    end.start()
    try:
        server.connect(mail.host, mail.port)
        if mail.tls == "starttls":
            server.starttls(context=receiver.tls)
        if mail.user is not None:
            server.login(mail.user, receiver.secret.decode())
        refused = server.send_message(letter)
        if refused:
            raise Undelivered(f"{len(refused)} of {len(mail.to)} addresses were refused")
        with suppress(smtplib.SMTPException, OSError):
            server.quit()
    except smtplib.SMTPRecipientsRefused as error:
        raise Undelivered(f"all {len(error.recipients)} addresses were refused") from None
    except smtplib.SMTPResponseException as error:
        raise Undelivered(f"the server answered {error.smtp_code}") from None
    except TimeoutError:
        raise Undelivered("no answer in time") from None
    except (smtplib.SMTPException, OSError) as error:
        why = f": {str(error)[:200]}" if isinstance(error, ssl.SSLError) else ""
        raise Undelivered(f"the connection failed: {type(error).__name__}{why}") from None
    finally:
        end.cancel()
        with suppress(OSError):
            server.close()
        server.cut()


class _Server(smtplib.SMTP):
    """A connection that can be cut from another thread, and that reads no endless answer."""

    def __init__(self, mail: Mail, tls: ssl.SSLContext) -> None:
        self._tls = tls if mail.tls == "implicit" else None
        self._handle: socket.socket | None = None
        super().__init__(timeout=SILENCE_S)
        self._host = mail.host  # what the certificate is to name

    def cut(self) -> None:
        """End the connection, whatever a thread waits for in it."""
        handle, self._handle = self._handle, None
        if handle is not None:
            with suppress(OSError):
                handle.shutdown(socket.SHUT_RDWR)
            handle.close()

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        made = socket.create_connection((host, port), timeout)
        self._handle = made.dup()
        return made if self._tls is None else self._tls.wrap_socket(made, server_hostname=host)

    def getreply(self) -> tuple[int, bytes]:
        """Read an answer, of bounded length."""
        if self.file is None and self.sock is not None:
            self.file = _Bounded(self.sock.makefile("rb"))
        return super().getreply()


class _Bounded:
    """A stream of a server's answers that ends after `MAX_ANSWER_BYTES`."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self._left = stream, MAX_ANSWER_BYTES

    def readline(self, most: int) -> bytes:
        line = self._stream.readline(most)
        self._left -= len(line)
        if self._left < 0:
            raise smtplib.SMTPServerDisconnected("its answers are too long")
        return line

    def close(self) -> None:
        self._stream.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
