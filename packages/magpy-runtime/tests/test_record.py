"""Records and their cache: order, limit, what is learned from a miss, threads."""

from __future__ import annotations

import threading
import weakref

from magpy_runtime import Record, RecordCache


def record(wanted, **changes):
    """A record for calls with one argument."""

    def guard(args, kwargs):
        if type(wanted) is int and args[0] is None:
            return -1
        return (wanted,) if args == (wanted,) else 0

    values = dict(
        guard=guard, mock=lambda bound, run: bound[0], run=None, guard_source="", held_source=lambda: ("held", {"a": 1}),
        mock_source="", checks=(f"argument is {wanted}",),
        check_keys=(("key", wanted),), held=(("a held fact", None),), graph=None,
        operators=0, effects=(), namespace={"held": object()},
    )  # fmt: skip
    return Record(**{**values, **changes})


def filled(*wanted, limit=8):
    cache = RecordCache(limit)
    made = [record(each) for each in wanted]
    for each in made:
        cache.add(each)
    return cache, made


def test_the_newest_is_tried_first():
    cache, [one, two, three] = filled(1, 2, 3)
    assert cache.records == (three, two, one)
    assert cache.find((3,), {}) == (three, (3,)) and cache.records == (three, two, one)


def test_a_hit_comes_to_the_front():
    cache, [one, two, three] = filled(1, 2, 3)
    assert cache.find((1,), {}) == (one, (1,))
    assert cache.records == (one, three, two)
    assert cache.find((2,), {}) == (two, (2,)) and cache.records == (two, one, three)


def test_a_miss_changes_nothing():
    cache, made = filled(1, 2)
    assert cache.find((5,), {}) is None and cache.records == (made[1], made[0])
    assert cache.failed == {} and RecordCache(1).find((), {}) is None


def test_the_limit():
    cache, _ = filled(1, 2, limit=3)
    assert not cache.full
    cache.add(record(3))
    assert cache.full and RecordCache(0).full


def test_what_is_learned_from_a_miss():
    cache, _ = filled(1, 2)
    cache.note_miss((5,), {})
    cache.note_miss((1,), {})
    assert cache.failed == {"argument is 1": 1, "argument is 2": 2}
    assert cache.unstable == {("key", 1), ("key", 2)}
    cache.note_miss((None,), {})
    assert cache.failed["a held fact"] == 2 and None not in cache.unstable


def test_what_a_number_means():
    made = record(1, held=(("first", "path"), ("second", None)))
    assert made.failed(0) == ("argument is 1", ("key", 1))
    assert made.failed(-1) == ("first", "path") and made.failed(-2) == ("second", None)


def test_discarding():
    cache, [one, two] = filled(1, 2)
    cache.discard(one)
    cache.discard(one)
    assert cache.records == (two,) and one.namespace, "calls that it serves go on"


def test_a_record_that_is_dropped_while_its_guard_runs_does_not_come_back():
    cache, [one, two] = filled(1, 2)
    original = one.guard

    def guard(args, kwargs):
        cache.discard(one)
        return original(args, kwargs)

    one.guard = guard
    assert cache.find((1,), {}) == (one, (1,))
    assert cache.records == (two,)


def test_clearing_lets_everything_go():
    class Held:
        pass

    obj = Held()
    cache, _ = filled()
    made = record(
        1, namespace={"obj": obj}, held_source=lambda kept=obj: ("", {}), run=lambda kept=obj: None, graph=obj
    )
    cache.add(made)
    cache.failed["a"] = 1
    cache.unstable.add("b")
    gone = weakref.ref(obj)
    del obj
    assert gone() is not None
    cache.clear()
    assert gone() is None and cache.records == () and not cache.failed and not cache.unstable
    assert made.held == () and made.held_source() == ("def held():\n    return None\n", {})


def test_threads():
    """Hits, additions and removals from several threads lose no record and double none."""
    cache, made = filled(*range(6))
    problems = []
    extra = [record(10 + number) for number in range(4)]

    def hit(number):
        for _ in range(300):
            found = cache.find((number,), {})
            if found is None or found[1] != (number,):
                problems.append((number, found))

    def change(number):
        for _ in range(150):
            cache.add(extra[number])
            cache.discard(extra[number])

    threads = [threading.Thread(target=hit, args=(number,)) for number in range(6)]
    threads += [threading.Thread(target=change, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert sorted(map(id, cache.records)) == sorted(map(id, made))
