"""Small charts as PNG, for Markdown: horizontal bars with a label before and a number behind each.

Drawn here, point by point, since no plotting library is worth its weight for two charts of a few bars. Labels hold
what `_GLYPHS` has; names of tables stand in the text beside the chart instead.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

_WIDTH = 640
_SCALE = 2
_ROW = 24
_MARGIN = 8
_BAR = 14
_ADVANCE = 6 * _SCALE

_PAPER, _INK, _FILL, _TRACK = range(4)
_PALETTE = bytes((255, 255, 255, 40, 44, 52, 79, 67, 221, 236, 238, 242))

_BLANK = (".....",) * 7
_GLYPHS: dict[str, tuple[str, ...]] = {
    " ": _BLANK,
    "0": (".###.", "#...#", "#..##", "#.#.#", "##..#", "#...#", ".###."),
    "1": ("..#..", ".##..", "..#..", "..#..", "..#..", "..#..", ".###."),
    "2": (".###.", "#...#", "....#", "..##.", ".#...", "#....", "#####"),
    "3": (".###.", "#...#", "....#", "..##.", "....#", "#...#", ".###."),
    "4": ("...#.", "..##.", ".#.#.", "#..#.", "#####", "...#.", "...#."),
    "5": ("#####", "#....", "####.", "....#", "....#", "#...#", ".###."),
    "6": (".###.", "#....", "#....", "####.", "#...#", "#...#", ".###."),
    "7": ("#####", "....#", "...#.", "..#..", "..#..", ".#...", ".#..."),
    "8": (".###.", "#...#", "#...#", ".###.", "#...#", "#...#", ".###."),
    "9": (".###.", "#...#", "#...#", ".####", "....#", "....#", ".###."),
    "B": ("####.", "#...#", "#...#", "####.", "#...#", "#...#", "####."),
    "E": ("#####", "#....", "#....", "####.", "#....", "#....", "#####"),
    "G": (".###.", "#...#", "#....", "#.###", "#...#", "#...#", ".###."),
    "K": ("#...#", "#..#.", "#.#..", "##...", "#.#..", "#..#.", "#...#"),
    "M": ("#...#", "##.##", "#.#.#", "#.#.#", "#...#", "#...#", "#...#"),
    "P": ("####.", "#...#", "#...#", "####.", "#....", "#....", "#...."),
    "T": ("#####", "..#..", "..#..", "..#..", "..#..", "..#..", "..#.."),
    "i": ("..#..", ".....", ".##..", "..#..", "..#..", "..#..", ".###."),
    "<": ("...#.", "..#..", ".#...", "#....", ".#...", "..#..", "...#."),
    ">": (".#...", "..#..", "...#.", "....#", "...#.", "..#..", ".#..."),
    "=": (".....", ".....", "#####", ".....", "#####", ".....", "....."),
    ".": (".....", ".....", ".....", ".....", ".....", ".##..", ".##.."),
    ",": (".....", ".....", ".....", ".....", ".##..", "..#..", ".#..."),
    "b": ("#....", "#....", "####.", "#...#", "#...#", "#...#", "####."),
    "e": (".....", ".....", ".###.", "#...#", "#####", "#....", ".###."),
    "s": (".....", ".....", ".####", "#....", ".###.", "....#", "####."),
    "t": (".#...", ".#...", "####.", ".#...", ".#...", ".#..#", "..##."),
    "y": (".....", ".....", "#...#", "#...#", ".####", "....#", ".###."),
}
_UNKNOWN = ("#####", "#...#", "#...#", "#...#", "#...#", "#...#", "#####")


@dataclass(frozen=True, slots=True)
class Bar:
    """`label` stands before the bar, `shown` behind it; `value` is not negative."""

    label: str
    value: float
    shown: str


def bar_chart(bars: Sequence[Bar]) -> bytes:
    """A PNG, 640 points wide, one row a bar, the longest bar as wide as there is room."""
    canvas = _Canvas(_WIDTH, 2 * _MARGIN + _ROW * max(len(bars), 1))
    label_width = _ADVANCE * max((len(bar.label) for bar in bars), default=0)
    shown_width = _ADVANCE * max((len(bar.shown) for bar in bars), default=0)
    left = _MARGIN + label_width + _MARGIN
    room = max(_WIDTH - left - shown_width - 2 * _MARGIN, 1)
    largest = max((bar.value for bar in bars), default=0.0)
    for row, bar in enumerate(bars):
        top = _MARGIN + row * _ROW
        text_top = top + (_BAR - 7 * _SCALE) // 2
        canvas.text(_MARGIN + label_width - _ADVANCE * len(bar.label), text_top, bar.label)
        canvas.box(left, top, room, _BAR, _TRACK)
        # What is there at all is seen.
        length = max(round(room * bar.value / largest), 2) if bar.value > 0 else 0
        canvas.box(left, top, length, _BAR, _FILL)
        canvas.text(left + room + _MARGIN, text_top, bar.shown)
    return canvas.png()


def image(chart: bytes, alternative: str) -> str:
    """The PNG as an image of Markdown, the data inside it. `alternative`: plain words, without markup."""
    return f"![{alternative}](data:image/png;base64,{base64.b64encode(chart).decode('ascii')})"


class _Canvas:
    def __init__(self, width: int, height: int) -> None:
        self._width = width
        self._rows = [bytearray(width) for _ in range(height)]

    def box(self, left: int, top: int, width: int, height: int, color: int) -> None:
        right = min(left + width, self._width)
        for row in self._rows[top : top + height]:
            if right > left:
                row[left:right] = bytes([color]) * (right - left)

    def text(self, left: int, top: int, text: str) -> None:
        for at, char in enumerate(text):
            for y, line in enumerate(_GLYPHS.get(char, _UNKNOWN)):
                for x, point in enumerate(line):
                    if point == "#":
                        self.box(left + at * _ADVANCE + x * _SCALE, top + y * _SCALE, _SCALE, _SCALE, _INK)

    def png(self) -> bytes:
        """PNG (ISO 15948): palette colours, 8 bits a point, no filter."""
        header = struct.pack(">IIBBBBB", self._width, len(self._rows), 8, 3, 0, 0, 0)
        points = b"".join(b"\0" + bytes(row) for row in self._rows)
        parts = ((b"IHDR", header), (b"PLTE", _PALETTE), (b"IDAT", zlib.compress(points, 9)), (b"IEND", b""))
        return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
