# SPDX-License-Identifier: Apache-2.0
"""Random binary data goes in and comes out byte for byte, by every framing and both transports."""
import hashlib
import json
import os
import unittest

import harness
import tap

TOTAL = harness.scaled(64 << 20, 8 << 20)
RECORD_MAX = 1 << 20


def random_records(rng, total):
    """Records of 0 bytes to 1 MiB whose sizes spread over all magnitudes; about `total` bytes."""
    records, left = [], total
    while left > 0:
        kind = rng.random()
        if kind < 0.02:
            size = RECORD_MAX - rng.randrange(2)
        elif kind < 0.1:
            size = 0
        else:
            size = min(RECORD_MAX, int(2 ** (rng.random() * 20)))
        records.append(rng.randbytes(size))
        left -= size
    return records


def frame(records):
    return b"".join(len(record).to_bytes(4, "big") + record for record in records)


class Roundtrip(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rng = harness.seeded("roundtrip")
        cls.records = random_records(cls.rng, TOTAL)
        cls.framed = frame(cls.records)

    def each_transport(self, body):
        with harness.scratch() as folder, harness.Broker(folder) as broker:
            for transport in ("shm", "tcp"):
                with self.subTest(transport=transport):
                    broker.flashq("topic", "create", f"t-{transport}", transport=transport)
                    body(broker, f"t-{transport}", transport)

    def read_framed(self, broker, topic, transport):
        return broker.flashq("sub", topic, "-o", "start", "-e", "-f", "%V{big4}%v", transport=transport)

    def test_length_prefixed_framing(self):
        def body(broker, topic, transport):
            broker.flashq("pub", topic, "-f", "%V{big4}%v", input=self.framed, transport=transport)
            back = self.read_framed(broker, topic, transport)
            self.assertEqual(hashlib.sha256(back).digest(), hashlib.sha256(self.framed).digest())
        self.each_transport(body)

    def test_empty_delimiter_makes_one_record_of_all_input(self):
        def body(broker, topic, transport):
            for size in (0, 1, 4096, RECORD_MAX - 1, RECORD_MAX):
                data = self.rng.randbytes(size)
                broker.flashq("pub", topic, "-D", "", input=data, transport=transport)
                back = broker.flashq("sub", topic, "-o", "-1", "-e", "-f", "%v", transport=transport)
                self.assertEqual(back, data, f"{size} bytes")
        self.each_transport(body)

    def test_files_one_record_each(self):
        def body(broker, topic, transport):
            files = []
            for index, record in enumerate(self.records[:200]):
                files.append(os.path.join(broker.folder, f"file-{index}"))
                with open(files[-1], "wb") as out:
                    out.write(record)
            broker.flashq("pub", topic, "--file", *files, transport=transport)
            self.assertEqual(self.read_framed(broker, topic, transport), frame(self.records[:200]))
        self.each_transport(body)

    def test_json_lines_in_are_what_json_lines_out_write(self):
        def body(broker, topic, transport):
            copy = topic + "-copy"
            broker.flashq("topic", "create", copy, transport=transport)
            broker.flashq("pub", topic, "-f", "%V{big4}%v", input=self.framed, transport=transport)
            lines = broker.flashq("sub", topic, "-o", "start", "-e", "-O", "jsonl", transport=transport)
            broker.flashq("pub", copy, "--in", "jsonl", input=lines, transport=transport)
            self.assertEqual(self.read_framed(broker, copy, transport), self.framed)
            again = broker.flashq("sub", copy, "-o", "start", "-e", "-O", "jsonl", transport=transport)
            for before, after in zip(harness.json_lines(lines), harness.json_lines(again)):
                before["topic"] = copy
                self.assertEqual(before, after)
        self.each_transport(body)

    def test_every_byte_value_survives_a_pipe(self):  # case 34
        data = bytes(range(256)).replace(b"\n", b"") + b"\r"
        with harness.scratch() as folder, harness.Broker(folder) as broker:
            broker.flashq("topic", "create", "t")
            broker.flashq("pub", "t", input=data + b"\n" + b"last without newline")
            back = broker.flashq("sub", "t", "-o", "start", "-e")
            self.assertEqual(back, data + b"\nlast without newline\n")
            self.assertEqual(broker.flashq("sub", "t", "-o", "start", "-e", "-f", "%V\n"),
                             b"256\n20\n")


class Records(unittest.TestCase):
    """null, empty, headers and sizes at the limit, through the CLI and JSON."""

    def test_null_and_empty_keys_and_values_differ(self):  # case 30
        cases = [{"key": key, "value": value} for key in (None, "", "k") for value in (None, "", "v")]
        lines = "".join(json.dumps(case) + "\n" for case in cases).encode()
        with harness.scratch() as folder, harness.Broker(folder) as broker:
            for transport in ("shm", "tcp"):
                topic = f"t-{transport}"
                broker.flashq("topic", "create", topic, transport=transport)
                broker.flashq("pub", topic, "--in", "jsonl", input=lines, transport=transport)
                out = broker.flashq("sub", topic, "-o", "start", "-e", "-O", "jsonl", transport=transport)
                got = [{"key": doc["key"], "value": doc["value"]} for doc in harness.json_lines(out)]
                self.assertEqual(got, cases)
                self.assertNotIn(b'"null"', out)

    def test_headers_keep_order_duplicates_null_and_nul(self):  # case 31
        headers = [{"name": "a", "value": "1"}, {"name": "a", "value": "2"}, {"name": "n", "value": None},
                   {"name": "e", "value": ""}, {"name": "z", "value": "x\u0000y"},
                   {"name": "b", "value_b64": "/wA="}]
        headers += [{"name": f"h{index}", "value": str(index)} for index in range(500)]
        record = {"key": "k", "value": "v", "headers": headers}
        with harness.scratch() as folder, harness.Broker(folder) as broker:
            broker.flashq("topic", "create", "t")
            broker.flashq("pub", "t", "--in", "jsonl", input=json.dumps(record).encode() + b"\n")
            out = harness.json_lines(broker.flashq("sub", "t", "-o", "start", "-e", "-O", "jsonl"))
            self.assertEqual(out[0]["headers"], headers)

    def test_record_sizes_around_message_max_bytes(self):  # case 32
        limit = 65536
        with harness.scratch() as folder:
            with harness.Broker(folder, settings={"message.max.bytes": str(limit)}) as broker:
                broker.flashq("topic", "create", "t")
                for size in (limit - 1, limit):
                    broker.flashq("pub", "t", "-D", "", input=b"x" * size)
                _, stderr = broker.run("pub", "t", "-D", "", input=b"x" * (limit + 1), code=1)
                self.assertIn("message.max.bytes", stderr)
                self.assertRegex(stderr, rf"{limit}|64 ?KiB")
                out = broker.flashq("sub", "t", "-o", "start", "-e", "-f", "%V\n")
                self.assertEqual(out, f"{limit - 1}\n{limit}\n".encode())

    def test_a_record_larger_than_the_fetch_still_comes(self):  # case 32
        with harness.scratch() as folder, harness.Broker(folder) as broker:
            broker.flashq("topic", "create", "t")
            data = harness.seeded("large fetch").randbytes(1 << 20)
            broker.flashq("pub", "t", "-D", "", input=data)
            for transport in ("shm", "tcp"):
                back = broker.flashq("-X", "fetch.max.bytes=4096", "sub", "t", "-o", "start", "-e", "-f", "%v",
                                     transport=transport)
                self.assertEqual(back, data)

    def test_compressed_batches(self):
        text = b"".join(b"line %d of a log that repeats itself\n" % index for index in range(20000))
        with harness.scratch() as folder, harness.Broker(folder) as broker:
            for codec in ("none", "lz4", "zstd"):
                broker.flashq("topic", "create", codec)
                # as large as batches get, so that what a codec saves does not hang on the machine's pace
                broker.flashq("-X", "linger.ms=200", "pub", codec, "-z", codec, input=text)
                self.assertEqual(broker.flashq("sub", codec, "-o", "start", "-e"), text)
            sizes = {}
            for codec in ("none", "lz4", "zstd"):
                document = json.loads(broker.flashq("-O", "json", "topic", "describe", codec))
                sizes[codec] = sum(partition["bytes"] for partition in document["partitions"])
            self.assertLess(sizes["lz4"], sizes["none"] / 2)
            self.assertLess(sizes["zstd"], sizes["none"] / 2)


if __name__ == "__main__":
    tap.main()
