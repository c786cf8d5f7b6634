"""The radix tree over token ids, against a search through all sequences."""

from hypothesis import given
from hypothesis import strategies as st

from appliance.engine.prefix import PrefixTree, Tokens, common_length

runs = st.lists(st.integers(0, 2), min_size=1, max_size=8).map(tuple)


def make_tree(held: dict[int, Tokens]) -> PrefixTree:
    tree = PrefixTree()
    for holder, tokens in held.items():
        tree.insert(holder, tokens)
    return tree


def longest(held: dict[int, Tokens], wanted: Tokens) -> tuple[frozenset[int], int]:
    """What `match` must find, the slow way."""
    shared = {holder: _shared(tokens, wanted) for holder, tokens in held.items()}
    best = max(shared.values(), default=0)
    if best == 0:
        return frozenset(), 0
    return frozenset(holder for holder, length in shared.items() if length == best), best


def _shared(a: Tokens, b: Tokens) -> int:
    length = 0
    while length < min(len(a), len(b)) and a[length] == b[length]:
        length += 1
    return length


@given(runs, runs)
def test_common_length_counts_leading_equals(a: Tokens, b: Tokens) -> None:
    assert common_length(a, b) == _shared(a, b)


@given(st.lists(runs, max_size=8), runs, st.data())
def test_match_finds_all_that_share_the_longest_prefix(
    inserted: list[Tokens], wanted: Tokens, data: st.DataObject
) -> None:
    held = dict(enumerate(inserted))
    tree = make_tree(held)
    assert tree.match(wanted) == longest(held, wanted)
    gone = data.draw(st.sets(st.sampled_from(sorted(held)))) if held else set()
    for holder in gone:
        tree.remove(holder, held.pop(holder))
    assert tree.match(wanted) == longest(held, wanted)


@given(st.lists(runs, max_size=8))
def test_emptied_tree_holds_nothing(inserted: list[Tokens]) -> None:
    tree = make_tree(dict(enumerate(inserted)))
    for holder, tokens in enumerate(inserted):
        tree.remove(holder, tokens)
    assert not tree._root.children


def test_match_may_end_inside_a_run() -> None:
    tree = make_tree({1: (1, 2, 3, 4)})
    assert tree.match((1, 2, 9)) == ({1}, 2)
    assert tree.match((9,)) == (frozenset(), 0)
    assert tree.match(()) == (frozenset(), 0)


def test_longer_wish_finds_the_whole_run() -> None:
    tree = make_tree({1: (1, 2), 2: (1, 2, 3)})
    assert tree.match((1, 2, 3, 4)) == ({2}, 3)
    assert tree.match((1, 2, 5)) == ({1, 2}, 2)
