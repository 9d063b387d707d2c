# SPDX-License-Identifier: Apache-2.0
"""A plot of latency over time as SVG: percentiles as lines on a logarithmic axis, rolls as marks below."""
import math

WIDTH, HEIGHT = 960, 420
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 40, 60
LINES = (("p50", 2, "#2b6cb0"), ("p99", 3, "#2f855a"), ("p99.9", 4, "#c05621"), ("max", 5, "#a0aec0"))


def decades(values):
    low = math.floor(math.log10(max(0.1, min(values))))
    high = math.ceil(math.log10(max(max(values), 10 ** (low + 1))))
    return low, high


def text(x, y, words, anchor="middle", color="#2d3748"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-family="sans-serif" font-size="12" '
            f'fill="{color}">{words}</text>')


def line(x1, y1, x2, y2, color):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}" stroke-width="1"/>'


def latency_over_time(stretches, rolls, title):
    """stretches: (seconds, count, p50, p99, p99.9, max) in us; rolls: seconds."""
    end = max(stretches[-1][0], 1e-6)
    low, high = decades([value for stretch in stretches for value in stretch[2:6] if value > 0])

    def x_of(seconds):
        return LEFT + (WIDTH - LEFT - RIGHT) * seconds / end

    def y_of(us):
        share = (math.log10(max(us, 10 ** low)) - low) / (high - low)
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
             f'height="{HEIGHT}">', f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
             text(WIDTH / 2, 18, title)]
    for decade in range(low, high + 1):
        y = y_of(10 ** decade)
        parts += [line(LEFT, y, WIDTH - RIGHT, y, "#e2e8f0"), text(LEFT - 8, y + 4, f"{10 ** decade:g} us", "end")]
    for tick in range(6):
        x = x_of(end * tick / 5)
        parts += [line(x, TOP, x, HEIGHT - BOTTOM, "#edf2f7"),
                  text(x, HEIGHT - BOTTOM + 30, f"{end * tick / 5:.2f} s")]
    parts += [line(x_of(roll), HEIGHT - BOTTOM, x_of(roll), HEIGHT - BOTTOM + 10, "#c53030") for roll in rolls]
    for number, (name, field, color) in enumerate(LINES):
        points = " ".join(f"{x_of(stretch[0]):.1f},{y_of(stretch[field]):.1f}" for stretch in stretches)
        parts += [f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="1"/>',
                  text(LEFT + 60 + 90 * number, HEIGHT - 10, name, color=color)]
    parts += [text(LEFT + 60 + 90 * len(LINES), HEIGHT - 10, f"marks: {len(rolls)} segment rolls", "start",
                   "#c53030"), "</svg>"]
    return "\n".join(parts) + "\n"
