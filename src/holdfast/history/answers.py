"""Encodes answers as messages: a caller of `answer` has no claim on the thread, and posts to its inbox."""

from msgspec import ValidationError, convert

from holdfast.codec import decode, encode
from holdfast.history.binding import ANSWER, Binding
from holdfast.history.entries import Answered
from holdfast.records.errors import CodecError, Corrupt


def message_key(number: int) -> str:
    """The key of the message that answers request `number`."""
    return f"answer:{number}"


def pack_answer(binding: Binding, entry: Answered) -> bytes:
    """An answer as the message that carries it, sealed like everything else of its thread."""
    content = [entry.choice, entry.value, entry.by, entry.comment, entry.at, entry.expired]
    return binding.seal(encode(content), entry.number, ANSWER)


def unpack_answer(binding: Binding, number: int, message: bytes) -> Answered:
    """The answer in a message."""
    name = f"answer {number} of {binding.thread_id!r}"
    try:
        return convert(["answer", number, *decode(binding.unseal(message, number, ANSWER))], Answered)
    except (Corrupt, CodecError, TypeError, ValidationError) as error:
        raise Corrupt(f"{name} is damaged: {error}", record=name) from error
