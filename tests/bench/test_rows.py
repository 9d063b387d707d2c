# SPDX-License-Identifier: Apache-2.0
"""What bench.sh concludes from figures: medians, verdicts, where the rolls are, the plot."""
import os
import tempfile
import types
import unittest
import xml.etree.ElementTree

import ablation
import bench
import plot
import rows
import tap


class Verdicts(unittest.TestCase):
    def judge(self, checks, pairs, is_binding=True):
        return [(found["value"], found["verdict"]) for found in
                bench.judge(types.SimpleNamespace(name="x", checks=checks), pairs, is_binding)]

    def test_the_median_of_the_pairs_ratios_decides(self):
        pairs = [{"a": a, "b": b} for a, b in ((1, 10), (9, 10), (4, 10), (5, 10), (6, 10))]
        self.assertEqual(self.judge([rows.ratio("", "a", "b", 0.5)], pairs), [(0.5, "ok")])
        self.assertEqual(self.judge([rows.ratio("", "a", "b", 0.51)], pairs), [(0.5, "short")])
        self.assertEqual(self.judge([rows.ratio("", "a", "b", 0.49, at_least=False)], pairs), [(0.5, "short")])
        self.assertEqual(self.judge([rows.ratio("", "a", "b", 0.5, at_least=False)], pairs), [(0.5, "ok")])

    def test_absolute_figures_bind_on_a_fast_machine_only(self):
        check = [rows.absolute("", "a", 10, "us", at_least=False), rows.ratio("", "a", "b", 1)]
        self.assertEqual(self.judge(check, [{"a": 11, "b": 10}]), [(11, "short"), (1.1, "ok")])
        self.assertEqual(self.judge(check, [{"a": 11, "b": 12}], False), [(11, "not binding"), (11 / 12, "short")])

    def test_an_even_number_of_pairs(self):
        self.assertEqual(rows.median([4, 1, 3, 2]), 2.5)

    def test_every_row_of_the_table_is_there_once(self):
        names = [row.name for row in rows.ROWS]
        self.assertEqual(len(names), len(set(names)))
        for name in ("pub-1k pub-64 pub-tcp pub-ext4 producers-8 drain-push-1k drain-push-64 drain-pull-1k pull-one-shm "
                     "pull-one-tcp sync-shm sync-shm-nospin sync-tcp e2e-push growth-log growth-partitions "
                     "growth-connections rolls").split():
            self.assertIn(name, names)
        for row in rows.ROWS:
            self.assertTrue(row.what and row.checks, row.name)


class RollTimes(unittest.TestCase):
    # ten stretches of 10 ms with 100 records each; the fourth has none
    STRETCHES = [(index / 100, 100.0, 5.0, 8.0, 9.0 + 90 * (index in (2, 7)), 200.0)
                 for index in range(11) if index != 3]

    def test_a_roll_is_where_its_first_record_was_acknowledged(self):
        self.assertEqual(rows.roll_times(self.STRETCHES, [1, 99, 100, 250, 300, 999, 1000]),
                         [0.0, 0.0, 0.01, 0.02, 0.04, 0.10])

    def test_stretches_with_a_roll_are_told_from_the_others(self):
        with_rolls, without = rows.split(self.STRETCHES, [0.02, 0.07], 0.01)
        # 0.02, (0.03 is empty), 0.07 and 0.08; the first tenth is left out
        self.assertEqual(with_rolls, [99.0, 99.0, 9.0])
        self.assertEqual(without, [9.0] * 6)

    def test_the_file_is_read_back(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "series.csv")
            with open(path, "w", encoding="ascii") as file:
                file.write("seconds,count,p50_us,p99_us,p999_us,max_us\n0.000000,3,1.000,2.000,3.000,4.000\n"
                           "0.100000,0,,,,\n0.200000,1,5.000,5.000,5.000,5.000\n")
            self.assertEqual(rows.read_series(path), [(0, 3, 1, 2, 3, 4), (0.2, 1, 5, 5, 5, 5)])

    def test_the_plot_is_well_formed_and_inside_its_frame(self):
        root = xml.etree.ElementTree.fromstring(plot.latency_over_time(self.STRETCHES, [0.02, 0.07], "a title"))
        space = "{http://www.w3.org/2000/svg}"
        lines = root.findall(space + "polyline")
        self.assertEqual(len(lines), 4)
        for drawn in lines:
            points = [tuple(map(float, point.split(","))) for point in drawn.get("points").split()]
            self.assertEqual(len(points), len(self.STRETCHES))
            for x, y in points:
                self.assertTrue(plot.LEFT <= x <= plot.WIDTH - plot.RIGHT and plot.TOP <= y <= plot.HEIGHT - plot.BOTTOM)
        self.assertEqual(len([mark for mark in root.findall(space + "line") if mark.get("stroke") == "#c53030"]), 2)


class Ablation(unittest.TestCase):
    def update(self, path, size, holds):
        row = {"size": size, "rate": 1000, "best": "1 record", "batch_bytes": 1.0, "p50": 1.0, "p99": 2.0, "best_p99": 2.0,
               "p99_ratio": 1.0, "msgs_per_s": 1000.0, "throughput_ratio": 1.0, "holds": holds}
        ablation.update(path, types.SimpleNamespace(quick=False, pairs=5, machine="a machine"), [row], 0)
        with open(path, encoding="utf-8") as page:
            return page.read()

    def test_rows_of_sizes_that_were_not_measured_stay(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "page.md")
            with open(path, "w", encoding="utf-8") as page:
                page.write(f"before\n{ablation.BEGIN}\nnothing yet\n{ablation.END}\nafter\n")
            self.assertIn("1 of 1 rows hold.", self.update(path, 1024, True))
            self.assertIn("1 of 2 rows hold.", self.update(path, 64, False))
            text = self.update(path, 64, True)
        self.assertIn("2 of 2 rows hold.", text)
        self.assertIn("Rows of the sizes 1024 are of an earlier run.", text)
        self.assertLess(text.index("| 64 B |"), text.index("| 1024 B |"))
        self.assertEqual(text.count("| 64 B |"), 1)
        self.assertTrue(text.startswith("before\n") and text.endswith("after\n") and "nothing yet" not in text)


if __name__ == "__main__":
    tap.main()
