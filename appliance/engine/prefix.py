"""A radix tree over token ids: which resident sequence holds the longest prefix of a prompt.

Edges carry runs of tokens; every node knows the sequences whose tokens run through it. One tree a
scope: requests of different keys never see each other's prefixes, for the time a cached prefix
saves would tell one tenant what another has asked (CVE-2025-46570).
"""

Tokens = tuple[int, ...]


class _Node:
    __slots__ = ("children", "edge", "holders")

    def __init__(self, edge: Tokens, holders: set[int]) -> None:
        self.edge = edge
        self.holders = holders
        self.children: dict[int, _Node] = {}


def common_length(a: Tokens, b: Tokens) -> int:
    """How many leading tokens two runs share."""
    shorter = min(len(a), len(b))
    if a[:shorter] == b[:shorter]:  # the common case, compared in C
        return shorter
    low, high = 0, shorter  # a[:low] == b[:low] and a[:high] != b[:high]
    while high - low > 1:
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low


class PrefixTree:
    """Sequences by their tokens. An id is inserted once and removed with the same tokens."""

    def __init__(self) -> None:
        self._root = _Node((), set())

    @property
    def empty(self) -> bool:
        return not self._root.children

    def insert(self, holder: int, tokens: Tokens) -> None:
        """`holder` has all of these tokens, from the first one on; `remove` takes the same ones."""
        node, at = self._root, 0
        while at < len(tokens):
            child = node.children.get(tokens[at])
            if child is None:
                node.children[tokens[at]] = _Node(tokens[at:], {holder})
                return
            shared = common_length(child.edge, tokens[at : at + len(child.edge)])
            if shared < len(child.edge):
                child = self._split(node, child, shared)
            child.holders.add(holder)
            node, at = child, at + shared

    def remove(self, holder: int, tokens: Tokens) -> None:
        node, at = self._root, 0
        while at < len(tokens):
            child = node.children[tokens[at]]
            child.holders.discard(holder)
            if not child.holders:
                del node.children[tokens[at]]
                return
            node, at = child, at + len(child.edge)

    def match(self, tokens: Tokens) -> tuple[frozenset[int], int]:
        """The sequences that share the longest prefix with `tokens`, and its length."""
        node, at = self._root, 0
        while at < len(tokens):
            child = node.children.get(tokens[at])
            if child is None:
                break
            shared = common_length(child.edge, tokens[at : at + len(child.edge)])
            node, at = child, at + shared
            if shared < len(child.edge):
                break
        return frozenset(node.holders), at

    @staticmethod
    def _split(parent: _Node, child: _Node, at: int) -> _Node:
        upper = _Node(child.edge[:at], set(child.holders))
        child.edge = child.edge[at:]
        upper.children[child.edge[0]] = child
        parent.children[upper.edge[0]] = upper
        return upper
