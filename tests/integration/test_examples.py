# SPDX-License-Identifier: Apache-2.0
"""The programs of examples/, run against a real broker over both transports, do what they say."""
import os
import subprocess
import unittest

import harness
import tap


def example(name, *arguments, code=0):
    program = os.path.join(harness.BUILD, "examples", "example_" + name)
    done = subprocess.run([program, *arguments], capture_output=True, timeout=60, check=False)
    assert done.returncode == code, f"{name} exited with {done.returncode}: {done.stderr.decode()}"
    return done.stdout.decode()


class Examples(unittest.TestCase):
    def over_both(self, story):
        for transport in ("shm", "tcp"):
            with self.subTest(transport), harness.scratch() as folder, harness.Broker(folder) as broker:
                broker.flashq("topic", "create", "t", "-p", "1")
                story(broker, broker.address(transport))

    def test_publish_and_consume(self):
        def story(_, brokers):
            self.assertEqual(example("01_publish", brokers, "t", "hello"),
                             "stored in partition 0 at offset 0\n")
            self.assertEqual(example("01_publish", brokers, "t", "again"),
                             "stored in partition 0 at offset 1\n")
            self.assertEqual(example("03_consume", brokers, "t", "2"), "0@0 hello\n0@1 again\n")
            example("01_publish", brokers, "absent", "x", code=1)
        self.over_both(story)

    def test_publish_many(self):
        def story(_, brokers):
            self.assertIn("5000 records acknowledged", example("02_publish_many", brokers, "t", "5000"))
            lines = example("03_consume", brokers, "t", "5000").splitlines()
            self.assertEqual(len(lines), 5000)
            self.assertEqual(lines[4321], "0@4321 key-1=value 4321 [made-by]")
        self.over_both(story)

    def test_replay_by_time(self):
        def story(_, brokers):
            self.assertEqual(example("04_replay_by_time", brokers, "t").splitlines(),
                             ["the first record at or after 1700000006500 is at offset 7",
                              "second 7", "second 8", "second 9"])
        self.over_both(story)

    def test_topics(self):
        def story(broker, brokers):
            text = example("05_topics", brokers, "made")
            self.assertIn("topic made, 3 partitions", text)
            self.assertIn("message.max.bytes = 64KiB (topic)", text)
            broker.flashq("topic", "describe", "made", code=4)
        self.over_both(story)

    def test_build_in_place(self):
        def story(_, brokers):
            example("07_build_in_place", brokers, "t", "250")
            lines = example("03_consume", brokers, "t", "500").splitlines()
            self.assertEqual(lines, [f"0@{i} built {i}" for i in range(250)] +
                             [f"0@{250 + i} sent {i}" for i in range(250)])
        self.over_both(story)

    def test_event_loop(self):
        def story(broker, brokers):
            broker.flashq("pub", "t", "one", "two", "three")
            self.assertEqual(example("06_event_loop", brokers, "t", "3"), "one\ntwo\nthree\n")
        self.over_both(story)


if __name__ == "__main__":
    tap.main()
