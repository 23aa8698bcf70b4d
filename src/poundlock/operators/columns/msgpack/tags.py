"""What msgpack begins values with, as far as columns are written and read."""

from __future__ import annotations

NIL, FALSE, TRUE = 0xC0, 0xC2, 0xC3
INT, UNSIGNED, FLOAT = 0xD3, 0xCF, 0xCB  # of 64 bits
INTS, FLOATS = {1: 0xD0, 2: 0xD1, 4: 0xD2, 8: INT}, {4: 0xCA, 8: FLOAT}  # by how many bytes a number has
UNSIGNEDS = {1: 0xCC, 2: 0xCD, 4: 0xCE, 8: UNSIGNED}
SHORT_TEXT, SHORT_TEXT_MOST = 0xA0, 31  # a text of up to so many bytes has its length in its first byte
TEXTS, BINARIES = {1: 0xD9, 2: 0xDA, 4: 0xDB}, {1: 0xC4, 2: 0xC5, 4: 0xC6}  # by how many bytes a length has
EXTENSION = 0xC7  # a value with a code of its own, and its length in one byte before that
EXTENSION_OF_8 = 0xD7  # the same of eight bytes
LIST, LISTS, MAP, MAPS = 0x90, {2: 0xDC, 4: 0xDD}, 0x80, {2: 0xDE}
SHORT_MOST, LONG_MOST = 15, (1 << 16) - 1  # a list or map of so many has its length in its first byte, or in two more
