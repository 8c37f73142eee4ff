"""Objects of the OpenAI and Anthropic SDKs, made by the SDKs themselves from replies, come back exactly."""

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import anthropic
import openai
import pytest
from anthropic.types import Message, RawMessageStreamEvent, ToolUseBlock
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent

from codec.exact import same
from holdfast.codec import decode, encode, registry
from holdfast.sync import SQLiteStore, durable, step

CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "weather", "arguments": '{"city": "Oslo"}'},
    "index_hint": 3,
}
CHAT = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1_790_000_000,
    "model": "gpt-5",
    "brand_new_field": {"nested": [1, None, "x"]},
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "logprobs": {
                "content": [{"token": "a", "bytes": [97], "logprob": -0.1, "top_logprobs": []}],
                "refusal": None,
            },
            "message": {"role": "assistant", "content": None, "refusal": None, "tool_calls": [CALL], "annotations": []},
        }
    ],
    "usage": {
        "prompt_tokens": 12,
        "completion_tokens": 7,
        "total_tokens": 19,
        "completion_tokens_details": {"reasoning_tokens": 5, "audio_tokens": 0},
        "prompt_tokens_details": {"cached_tokens": 0},
    },
}
CHUNK = {
    "id": "chatcmpl-1",
    "object": "chat.completion.chunk",
    "created": 1,
    "model": "gpt-5",
    "choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, **CALL}]}, "finish_reason": None}],
}
RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1_790_000_000.5,
    "status": "completed",
    "model": "gpt-5",
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [{"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": True}],
    "output": [
        {"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"id": "fc_1", "type": "function_call", "call_id": "c", "name": "weather", "arguments": "{}"},
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Rain.", "annotations": []}],
        },
    ],
    "usage": {
        "input_tokens": 1,
        "output_tokens": 2,
        "total_tokens": 3,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 1},
    },
}
MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-x",
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "content": [
        {"type": "text", "text": "Let me look.", "citations": None},
        {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Oslo", "days": [1, 2]}},
        {"type": "a_block_of_tomorrow", "payload": 1},
    ],
    "usage": {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 0, "service_tier": "standard"},
}


requests: list[str] = []
REPLIES = {"/chat/completions": CHAT, "/responses": RESPONSE, "/v1/messages": MESSAGE}


class Model(BaseHTTPRequestHandler):
    """A server that gives the same reply to every request, with the headers that the SDKs look at."""

    def do_POST(self) -> None:
        requests.append(self.path)
        body = json.dumps(REPLIES[self.path]).encode()
        self.send_response(200)
        sent = {"content-type": "application/json", "x-request-id": "req_1", "request-id": "req_1"}
        for name, value in {**sent, "content-length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    http = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    Thread(target=http.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{http.server_port}"
    http.shutdown()
    http.server_close()


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")


@step
def chat(url: str) -> ChatCompletion:
    with openai.OpenAI(api_key="x", base_url=url) as client:
        return client.chat.completions.create(model="gpt-5", messages=[])


@step
def respond(url: str) -> Response:
    with openai.OpenAI(api_key="x", base_url=url) as client:
        return client.responses.create(model="gpt-5", input="x")


@step
def message(url: str) -> Message:
    with anthropic.Anthropic(api_key="x", base_url=url) as client:
        return client.messages.create(model="claude-x", max_tokens=5, messages=[])


@step
def chunk() -> ChatCompletionChunk:
    return ChatCompletionChunk.model_validate(CHUNK)


@step
def events() -> list[ResponseStreamEvent | RawMessageStreamEvent]:
    return []


@pytest.mark.parametrize("ask", [chat, respond, message])
def test_a_step_that_calls_a_model_records_the_reply_and_replays_it(
    ask: Callable[[str], Any], server: str, tmp_path: Path
) -> None:
    replies: list[Any] = []
    asked_before = len(requests)

    @durable(store=SQLiteStore(tmp_path / "s.db"))
    def agent(url: str) -> None:
        replies.append(ask(url))
        if len(replies) == 1:
            raise RuntimeError("the process fails after the paid call")

    with pytest.raises(RuntimeError):
        agent.run("t", server)
    agent.run("t", server)
    first, replayed = replies
    assert len(requests) == asked_before + 1
    assert same(replayed, first)
    assert replayed == first
    assert replayed._request_id == "req_1"
    assert replayed.model_dump(warnings=False) == first.model_dump(warnings=False)


def test_nested_objects_are_of_their_own_classes(server: str) -> None:
    completion, answer = decode(encode(chat(server))), decode(encode(message(server)))
    assert completion.choices[0].message.tool_calls[0].function.arguments == '{"city": "Oslo"}'
    assert completion.usage.completion_tokens_details.reasoning_tokens == 5
    assert completion.brand_new_field == {"nested": [1, None, "x"]}
    assert completion.model_fields_set == chat(server).model_fields_set
    assert answer.content[1].input == {"city": "Oslo", "days": [1, 2]}
    assert type(answer.content[1]) is type(message(server).content[1]) is ToolUseBlock


@pytest.mark.parametrize("make", ["model_validate", "construct"])
@pytest.mark.parametrize(
    ("cls", "reply"), [(ChatCompletion, CHAT), (ChatCompletionChunk, CHUNK), (Response, RESPONSE), (Message, MESSAGE)]
)
def test_validated_and_constructed_objects_are_exact(cls: Any, reply: dict[str, Any], make: str) -> None:
    registry.register(cls)
    data = json.loads(json.dumps(reply))
    if make == "construct":
        value = cls.construct(**data)
    else:
        data.get("content", [])[2:] = []  # a block that validation does not know
        value = cls.model_validate(data)
    assert same(decode(encode(value)), value)


def test_chunks_and_events_of_streams_are_exact() -> None:
    assert same(decode(encode(chunk())), chunk())
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": "{"}}
    text = {"type": "response.output_text.delta", "item_id": "m", "output_index": 0, "content_index": 0}
    values: list[Any] = [
        anthropic.types.RawContentBlockDeltaEvent.model_validate(delta),
        openai.types.responses.ResponseTextDeltaEvent.model_validate(
            {**text, "delta": "x", "sequence_number": 1, "logprobs": []}
        ),
    ]
    assert same(decode(encode(values)), values)


def test_importing_holdfast_imports_no_sdk_and_no_pydantic() -> None:
    code = """
        import sys, holdfast
        holdfast.step, holdfast.durable, holdfast.register
        @holdfast.step
        def one() -> "list[str]": ...
        print(sorted({"pydantic", "openai", "anthropic"} & set(sys.modules)))
    """
    ran = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
