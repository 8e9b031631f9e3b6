"""How nodes divide into buddy cells: sizes, quotas in cells, and the window that is bound first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache


@cache
def sizes_of(gpus: int) -> tuple[int, ...]:
    """The sizes of the cells of a node, largest first: 8 gives 8, 4, 2, 1."""
    sizes = [gpus] if gpus else []
    while sizes and sizes[-1] > 1:
        sizes.append(sizes[-1] // 2 if sizes[-1] % 2 == 0 else 1)
    return tuple(sizes)


def owned_by_quota(quota: int, nodes: list[int]) -> Counter[int]:
    """Cells, largest first, that make up `quota` GPUs on nodes of so many GPUs each."""
    return Counter(_made_up(quota, frozenset(nodes)))


@cache
def _made_up(quota: int, nodes: frozenset[int]) -> Counter[int]:
    sizes = sorted({size for gpus in nodes for size in sizes_of(gpus)}, reverse=True)
    owned: Counter[int] = Counter()
    for size in sizes:
        owned[size], quota = divmod(quota, size)
    return +owned


@lru_cache(1 << 16)
def cheapest(gpus: int, size: int, taken: int, free: int) -> tuple[int, int, int] | None:
    """Of a node with `gpus` GPUs the free window of `size` that is bound first: what free cell is
    split for it, how many opportunistic GPUs are in it, where it begins; None if there is none."""
    sizes = [each for each in sizes_of(gpus) if each >= size]
    found = []
    for start in range(0, gpus - size + 1, size):
        window = (1 << size) - 1 << start
        if not taken & window:
            busy = (window & ~free).bit_count()
            found.append((whole(0, start, sizes, taken), busy, start))
    return min(found) if found and size in sizes else None


def whole(begin: int, start: int, sizes: list[int], taken: int) -> int:
    """The size of the largest free cell around `start` that would have to be split, in a cell
    that begins at `begin`."""
    found = sizes[-1]
    for size in reversed(sizes):
        first = begin + (start - begin) // size * size
        if taken & ((1 << size) - 1 << first):
            break
        found = size
    return found


def possible(owned: Iterable[Mapping[int, int]], nodes: list[int]) -> bool:
    """Whether all cells of all tenants can be cut from the nodes: the largest first, each from
    the smallest free cell that holds it."""
    wanted: Counter[int] = Counter()
    for sizes in owned:
        wanted.update(sizes)
    trees: Counter[tuple[int, ...]] = Counter(sizes_of(gpus) for gpus in nodes if gpus)
    for size in sorted(wanted, reverse=True):
        for _ in range(wanted[size]):
            fits = [tree for tree in +trees if size in tree]
            if not fits:
                return False
            tree = min(fits, key=lambda tree: tree.index(size))
            trees[tree] -= 1
            while tree[0] > size:
                trees[tree[1:]] += tree[0] // tree[1] - 1
                tree = tree[1:]
    return True
