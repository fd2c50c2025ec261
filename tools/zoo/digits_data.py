# SPDX-License-Identifier: Apache-2.0
"""The digits data set: drawn by this file, from a seed, out of nothing.

A digit is a few strokes (lines and arcs). Each image takes one of several ways to draw its digit,
bends and slants it, turns, scales and shifts it, draws it with a random pen over a shaded
background, and then makes it harder: foreign strokes, an occluding bar, low contrast and noise.
Images are u8[28][28], light ink on a dark ground.
"""
import numpy as np

SIDE = 28
SEGMENTS = 26  # the longest glyph; shorter ones repeat their last point
CLUTTER_MAX = 3


def _line(*points):
    return np.array(points, dtype=np.float64)


def _arc(cx, cy, rx, ry, begin, end, steps):
    """Points of an ellipse from angle begin to end, in degrees; 0 is right and 90 is down."""
    t = np.radians(np.linspace(begin, end, steps + 1))
    return np.stack([cx + rx * np.cos(t), cy + ry * np.sin(t)], axis=1)


def _join(*parts):
    return np.concatenate(parts)


# Seven-segment strokes in the box x -0.45..0.45, y -0.8..0.8.
_A = _line((-0.45, -0.8), (0.45, -0.8))
_B = _line((0.45, -0.8), (0.45, 0.0))
_C = _line((0.45, 0.0), (0.45, 0.8))
_D = _line((-0.45, 0.8), (0.45, 0.8))
_E = _line((-0.45, 0.0), (-0.45, 0.8))
_F = _line((-0.45, -0.8), (-0.45, 0.0))
_G = _line((-0.45, 0.0), (0.45, 0.0))

# GLYPHS[digit] is a list of ways to draw it; a way is a list of strokes, a stroke a list of points.
GLYPHS = [
    [[_arc(0, 0, 0.5, 0.8, 0, 360, 18)], [_A, _B, _C, _D, _E, _F],
     [_arc(0, 0, 0.38, 0.8, -70, 290, 18)]],
    [[_line((0, -0.8), (0, 0.8))], [_line((-0.3, -0.45), (0.05, -0.8), (0.05, 0.8))],
     [_line((-0.3, -0.5), (0, -0.8), (0, 0.8)), _line((-0.35, 0.8), (0.35, 0.8))]],
    [[_join(_arc(0, -0.35, 0.45, 0.45, -170, 40, 9), _line((-0.45, 0.8), (0.5, 0.8)))],
     [_A, _B, _G, _E, _D],
     [_line((-0.45, -0.8), (0.4, -0.8), (-0.45, 0.8), (0.5, 0.8))]],
    [[_arc(0, -0.4, 0.42, 0.4, -160, 90, 9), _arc(0, 0.4, 0.48, 0.4, -90, 160, 9)],
     [_A, _B, _G, _C, _D],
     [_join(_line((-0.4, -0.8), (0.4, -0.8), (0.0, -0.15)), _arc(0, 0.33, 0.45, 0.47, -90, 150, 9))]],
    [[_line((0.2, 0.8), (0.2, -0.8), (-0.5, 0.3), (0.5, 0.3))], [_F, _G, _B, _C],
     [_line((-0.35, -0.8), (-0.45, 0.15), (0.5, 0.15)), _line((0.25, -0.5), (0.2, 0.8))]],
    [[_join(_line((0.42, -0.8), (-0.35, -0.8), (-0.4, -0.1)), _arc(0, 0.3, 0.45, 0.5, -130, 150, 10))],
     [_A, _F, _G, _C, _D],
     [_line((0.4, -0.75), (-0.3, -0.8)), _join(_line((-0.3, -0.8), (-0.3, -0.1)),
                                              _arc(-0.05, 0.35, 0.45, 0.42, -110, 130, 10))]],
    [[_join(_arc(0.25, 0.3, 0.7, 1.1, -100, -180, 6), _arc(0, 0.35, 0.45, 0.45, 180, -180, 14))],
     [_A, _F, _E, _D, _C, _G],
     [_line((0.3, -0.8), (-0.38, 0.2)), _arc(0, 0.38, 0.43, 0.42, 0, 360, 14)]],
    [[_line((-0.45, -0.8), (0.45, -0.8), (-0.15, 0.8))], [_A, _B, _C],
     [_line((-0.45, -0.8), (0.45, -0.8), (-0.1, 0.8)), _line((-0.3, 0.0), (0.4, 0.0))],
     [_line((-0.45, -0.6), (-0.45, -0.8), (0.45, -0.8), (0.05, 0.0), (0.0, 0.8))]],
    [[_arc(0, -0.4, 0.38, 0.4, 90, 450, 11), _arc(0, 0.4, 0.46, 0.4, -90, 270, 12)],
     [_A, _B, _C, _D, _E, _F, _G],
     [_arc(0, -0.4, 0.42, 0.36, 90, 450, 11), _arc(0, 0.38, 0.38, 0.44, -90, 270, 12)]],
    [[_arc(0, -0.35, 0.43, 0.45, 0, 360, 13), _line((0.43, -0.35), (0.4, 0.8))],
     [_G, _F, _A, _B, _C, _D],
     [_arc(0, -0.37, 0.42, 0.42, 0, 360, 13), _arc(-0.35, -0.3, 0.77, 1.1, 0, 75, 6)]],
]


def _glyph_table():
    """All glyphs as segments f64[glyph][SEGMENTS][2 ends][x, y], and which digit starts where."""
    table, first = [], []
    for ways in GLYPHS:
        first.append(len(table))
        for strokes in ways:
            pairs = [np.stack([s[:-1], s[1:]], axis=1) for s in strokes]
            segments = np.concatenate(pairs)
            pad = SEGMENTS - len(segments)
            last = np.repeat(segments[-1:, 1:2], 2, axis=1)
            table.append(np.concatenate([segments, np.repeat(last, pad, axis=0)]))
    return np.array(table), np.array(first + [len(table)])


_TABLE, _FIRST = _glyph_table()
_AXIS = np.linspace(-1, 1, SIDE)
_PIXELS = np.stack(np.meshgrid(_AXIS, _AXIS), axis=-1).reshape(-1, 2).astype(np.float32)


def _distance(segments):
    """Distance of every pixel to the nearest of an image's segments: f32[n][784]."""
    best = np.full((len(segments), len(_PIXELS)), np.inf, dtype=np.float32)
    for k in range(segments.shape[1]):
        a = segments[:, k, 0]
        d = segments[:, k, 1] - a
        length2 = np.maximum((d * d).sum(axis=1), np.float32(1e-9))[:, None]
        px = _PIXELS[None, :, 0] - a[:, 0:1]
        py = _PIXELS[None, :, 1] - a[:, 1:2]
        t = np.clip((px * d[:, 0:1] + py * d[:, 1:2]) / length2, 0, 1)
        px -= t * d[:, 0:1]
        py -= t * d[:, 1:2]
        np.minimum(best, px * px + py * py, out=best)
    return np.sqrt(best)


def _ink(distance, width):
    """Coverage 0..1 of a pen of that width; the edge is about one pixel soft."""
    return np.clip((width[:, None] / 2 - distance) * SIDE / 2 + 0.5, 0, 1)


def _draw(rng, labels):
    n = len(labels)

    def u(low, high, *shape):
        return rng.uniform(low, high, (n, *shape))

    way = _FIRST[labels] + (u(0, 1) * (_FIRST[labels + 1] - _FIRST[labels])).astype(np.int64)
    points = _TABLE[way]
    # A smooth bend: neighbouring points move together, so strokes stay connected.
    phase, wave = u(0, 2 * np.pi, 2, 1, 1), u(1.5, 4.0, 2, 1, 1)
    bend = u(0.0, 0.13, 2, 1, 1)
    x, y = points[..., 0], points[..., 1]
    x, y = (x + bend[:, 0] * np.sin(wave[:, 0] * y + phase[:, 0]),
            y + bend[:, 1] * np.sin(wave[:, 1] * x + phase[:, 1]))
    x = (x + u(-0.25, 0.25, 1, 1) * y) * u(0.75, 1.25, 1, 1)
    angle, scale = u(-0.30, 0.30, 1, 1), u(0.58, 0.95, 1, 1)
    c, s = np.cos(angle) * scale, np.sin(angle) * scale
    room = 0.95 - 0.8 * scale  # large digits have less room to move in
    x, y = (c * x - s * y + u(-1, 1, 1, 1) * room * 0.65,
            s * x + c * y + u(-1, 1, 1, 1) * room * 0.65)
    segments = np.stack([x, y], axis=-1).astype(np.float32)
    digit = _ink(_distance(segments), u(0.11, 0.30) * (0.5 + 0.5 * scale[:, 0, 0]))

    # Foreign strokes: short lines anywhere; an absent one lies far outside.
    centre = u(-1.0, 1.0, CLUTTER_MAX, 1, 2)
    turn, half = u(0, np.pi, CLUTTER_MAX, 1), u(0.08, 0.40, CLUTTER_MAX, 1)
    reach = np.stack([np.cos(turn) * half, np.sin(turn) * half], axis=-1)
    lines = np.concatenate([centre - reach, centre + reach], axis=2)
    lines += 100.0 * (u(0, 1, CLUTTER_MAX) > 0.45)[:, :, None, None]
    clutter = _ink(_distance(lines.astype(np.float32)), u(0.08, 0.22)) * u(0.4, 1.0, 1)

    # An occluder rubs out a bar of the digit in three images of ten.
    turn = u(0, np.pi, 1)
    across = np.abs(_PIXELS[None, :, 0] * np.cos(turn) + _PIXELS[None, :, 1] * np.sin(turn) - u(-0.6, 0.6, 1))
    visible = np.where((across < u(0.03, 0.09, 1)) & (u(0, 1, 1) < 0.3), 0.0, 1.0)

    slope = u(-0.18, 0.18, 2)
    ground = 0.2 + slope[:, 0:1] * _PIXELS[None, :, 0] + slope[:, 1:2] * _PIXELS[None, :, 1]
    image = ground + np.maximum(digit * visible, clutter) * u(0.30, 0.8, 1)
    image += rng.normal(0, 1, image.shape) * u(0.02, 0.18, 1)
    return np.clip(np.rint(image * 255), 0, 255).astype(np.uint8)


def make(seed, count):
    """images u8[count][1][28][28] and labels u8[count]; the ten digits are equally frequent.

    `seed` is a list of integers; different lists give independent images.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    labels = rng.permutation(np.arange(count, dtype=np.int64) % 10)
    chunks = [_draw(rng, labels[i:i + 2000]) for i in range(0, count, 2000)]
    return np.concatenate(chunks).reshape(count, 1, SIDE, SIDE), labels.astype(np.uint8)
