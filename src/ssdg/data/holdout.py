"""A validation part chosen by content: the same images fall on the same side wherever they are read."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

DIGEST = np.dtype((np.void, 16))


def held_out(digest: NDArray[np.uint8], rate: float, groups: NDArray[np.intp] | None = None) -> NDArray[np.bool_]:
    """Mark a share `rate` of the distinct contents, the ones with the lowest hashes; copies go together.

    With `groups` (a number per image) the share is taken of each group, rounded, and no group is marked
    whole: at a rate of 0.1 a group of fewer than five images keeps them all.
    """
    words = np.ascontiguousarray(digest).view(DIGEST).reshape(-1)
    if groups is None:
        groups = np.zeros(len(words), np.intp)
    _, first, content = np.unique(words, return_index=True, return_inverse=True)
    content = content.reshape(-1)
    group_of_content = groups[first]  # copies under two labels count for one of them
    marked = np.zeros(len(first), np.bool_)
    for group in np.unique(group_of_content):
        members = np.flatnonzero(group_of_content == group)  # in the order of their hashes
        marked[members[: _share(len(members), rate)]] = True
    for group in np.unique(groups):
        contents = np.unique(content[groups == group])
        if marked[contents].all():
            marked[contents] = False
    return marked[content]


def _share(count: int, rate: float) -> int:
    return min(int(rate * count + 0.5), count - 1)
