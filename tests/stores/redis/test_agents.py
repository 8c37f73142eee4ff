"""The sample of the document on agents, over a Redis store."""

import asyncio

from agent.test_document_stores import rolls_back
from holdfast import RedisStore
from servers.redis import new_prefix, shared_server


def test_checkpoints_in_redis_through_a_client_that_was_configured_before() -> None:
    server = shared_server()
    client = server.client(decode_responses=True)
    store = RedisStore(client, prefix=new_prefix(), durability="process")
    asyncio.run(rolls_back(store))
    assert client.ping()
    client.close()
