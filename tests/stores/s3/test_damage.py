"""Bit flips anywhere in what a bucket keeps: the right data or an error, never wrong data, never "not there"."""

from random import Random

import pytest

from rounds import rounds
from servers.s3 import new_prefix
from stores.damage_scenes import answers, fill, judge
from stores.s3.scenes import seaweed, store_at

FLIPS = rounds(8, 20)

pytestmark = pytest.mark.faults


def test_no_flipped_bit_of_an_object_is_returned_as_data() -> None:
    prefix, random, refused, server = new_prefix(), Random(11), 0, seaweed()
    with store_at(prefix) as store:
        fill(store)
        right = answers(store)
    objects = {name: data for name, data in server.objects(prefix).items() if "/spaces/" not in name}
    for _ in range(FLIPS):
        name = random.choices(list(objects), [len(data) for data in objects.values()])[0]
        damaged = bytearray(objects[name])
        damaged[random.randrange(len(damaged))] ^= 1 << random.randrange(8)
        server.write(name, bytes(damaged))
        refused += judge(lambda: store_at(prefix), right)
        server.write(name, objects[name])
    assert refused > FLIPS // 4, "many flips hit something"


@pytest.mark.parametrize("part", ["/rows/", "/blobs/"])
def test_an_object_that_was_removed_is_damage(part: str) -> None:
    prefix, server = new_prefix(), seaweed()
    with store_at(prefix) as store:
        fill(store)
        right = answers(store)
    names = sorted(name for name in server.objects(prefix) if part in name)
    for name in names[:: max(1, len(names) // 4)]:
        data = server.objects(name)[name]
        server.administrator().delete_object(Bucket="holdfast-tests", Key=name)
        assert judge(lambda: store_at(prefix), right) > 0
        server.write(name, data)
