"""Operators, comparisons, truth, strings."""

import operator

from ._programs import Box, program


class Number:
    def __init__(self, value):
        self.value = value

    def __add__(self, other):
        return Number(self.value + getattr(other, "value", other))

    def __radd__(self, other):
        return Number(other + self.value)

    def __iadd__(self, other):
        self.value += other
        return self

    def __neg__(self):
        return Number(-self.value)

    def __pos__(self):
        return self

    def __invert__(self):
        return Number(~self.value)

    def __lt__(self, other):
        return self.value < other.value

    def __eq__(self, other):
        return isinstance(other, Number) and self.value == other.value

    def __hash__(self):
        return hash(self.value)

    def __bool__(self):
        return self.value != 0

    def __repr__(self):
        return f"Number({self.value})"

    def __format__(self, spec):
        return f"<{self.value}{spec}>"


class Answers:
    """Comparisons give any object, whose truth is asked or not."""

    def __init__(self, answer):
        self.answer = answer

    def __lt__(self, other):
        return self.answer

    def __eq__(self, other):
        return self.answer

    def __ne__(self, other):
        return self.answer

    def __contains__(self, item):
        return self.answer

    def __repr__(self):
        return f"Answers({self.answer})"


@program(lambda: (7, 3))
def binary(a, b):
    return (
        a + b, a - b, a * b, a / b, a // b, a % b, a**b, a << b, a >> b, a & b, a | b, a ^ b, -a, +a, ~a, not a
    )  # fmt: skip


@program(lambda: (7, 3, [1]))
def augmented(a, b, values):
    kept = values
    values += [2]
    values *= 2
    a += b
    a -= 1
    a *= 3
    a //= 2
    a **= 2
    a %= 100
    a <<= 2
    a >>= 1
    a |= 64
    a &= 127
    a ^= 5
    c = a
    c /= 2
    return a, c, kept is values


@program(lambda: (Number(1), Number(2)))
def binary_objects(a, b):
    kept = a
    a += 5
    return a is kept, a + b, 1 + b, b + 1, -a, +a, ~a, not b


class Matrix:
    def __init__(self, rows):
        self.rows = rows

    def __matmul__(self, other):
        return self.rows + other.rows

    def __imatmul__(self, other):
        self.rows += other.rows
        return self

    def __repr__(self):
        return f"Matrix({self.rows})"


@program(lambda: (Matrix([1]), Matrix([2])))
def matmul(a, b):
    c = a @ b
    a @= b
    return c


@program(lambda: ([1, 2], (3,)))
def binary_containers(values, pair):
    return values + [3], values * 2, pair + (4,), {1} | {2}, {"a": 1} | {"b": 2}, "%s %s" % (1, 2), {1, 2} - {2}


@program(lambda: (1, 2, "a"))
def compare(a, b, text):
    low = a < b
    equal = a == b
    return [low, equal, a <= b, a > b, a >= b, a != b, text == "a", a is b, a is not None, 1 in (a, b), 5 not in (a, b)]


@program(lambda: (1, 2, [1, 2], [1, 2]))
def compare_jumps(a, b, values, others):
    found = []
    if a < b:
        found.append("less")
    if a < b < 3 and b >= a or a == b:
        found.append("chain")
    if values == others:
        found.append("lists")
    while a != b:
        a += 1
    found.append(1 < a <= b < 5)
    return found, 3 if a > b else 4


@program(lambda: (Number(1), Number(2), Number(1)))
def compare_objects(a, b, c):
    less = a < b
    if a < b and a == c and not a == b:
        return less, a == c, a > b, a is c, sorted([b, a]), [b, c].index(c), a in [b, c]


@program(lambda: (Answers([0]), Answers([]), Answers("yes"), Answers(Number(3))))
def compare_truth(some, none, text, number):
    found = []
    if some < 1:
        found.append("list")
    if none == 1:
        found.append("empty")
    if text != 1:
        found.append("text")
    while number < 1:
        found.append("number")
        break
    return found, 1 in some


@program(lambda: ([], [0], {}, "", None, 0.0, Number(0)))
def truth(empty, values, names, text, nothing, zero, number):
    found = [not empty, not values, bool(names), not number]
    if empty or values and not names:
        found.append(empty or values)
    if nothing is None:
        found.append(text or "none")
    if nothing is not None:
        found.append("some")
    if number:
        found.append("number")
    while zero:
        pass
    while not zero:
        zero = 1.0
    assert values, "none"
    assert not empty
    return found, None if nothing is None else 1, empty and 1, values or 2


@program(lambda: (Box(a=None, b=1),))
def truth_of_none(box):
    found = []
    for value in (box.a, box.b):
        if value is None:
            continue
        found.append(value)
    while box.a is not None:
        pass
    return found


@program(lambda: ([1], 2.5, 5, Number(3)))
def strings(values, number, width, formatted):
    return (
        f"{number} {values!r} {number!s:>{width}} {number:.1f} {values!a}", f"{number}", f"{width=}", f"{formatted:x}"
    )  # fmt: skip


@program(lambda: ([1, 2], {"a": 1}, {3}, Answers(1)))
def contains(values, names, members, answers):
    return 1 in values, "a" in names, "b" not in names, 3 in members, 2 in answers, "a" in "abc"


@program(lambda: (lambda a: None,))
def identity(function):
    other = function
    return function is other, function is not None, function is len


@program(lambda: ([],))
def assertion(values):
    assert values, "nothing"


@program(lambda: ([],))
def assertion_plain(values):
    try:
        assert values
    except AssertionError as error:
        return str(error)


class Node:
    def __init__(self, children, order=0):
        self.children = children
        self.order = order

    def __iter__(self):
        return iter(self.children)

    def __repr__(self):
        return f"Node({self.children})"


@program(lambda: ([Node([1]), Node([])], {"a": [2]}))
def truth_in_c(nodes, names):
    """Truth that `any` and the like ask of objects that no instruction sees."""
    return (
        any(node.children for node in nodes), all(map(lambda node: node.children, nodes)),
        list(filter(lambda node: node.children, nodes)), any(names.values()), any(filter(None, names.values())),
        any(zip(nodes, nodes)), any(enumerate(nodes)),
    )  # fmt: skip


@program(lambda: ([Node([[1], []]), Node([[2, 3]])],))
def truth_of_elements(nodes):
    return [any(node) for node in nodes], any(iter(nodes[0]))


@program(lambda: ([Node([2]), Node([1, 5])],))
def order_in_c(nodes):
    """Comparisons and sums in C of objects that no instruction sees."""
    return (
        sorted(nodes, key=lambda node: node.children), max(node.children for node in nodes),
        sum((node.children for node in nodes), []), min(map(lambda node: node.children, nodes)),
    )  # fmt: skip


class Index:
    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value

    def __repr__(self):
        return f"Index({self.value})"


@program(lambda: (Index(1), [1, 2, 3], (4, 5, 6)))
def indices(index, values, pair):
    values[index] = 5
    values[index:] = pair[:index]
    return values[index:], pair[index], [0] * index, pair[index:index]


@program(lambda: ({1}, {(1, 2): 3}, (1, 2), frozenset([1])))
def keys(members, names, pair, frozen):
    made = {pair: 1, frozen: 2, **names}
    return {*members, pair}, made, names[pair], pair in names, {pair for _ in "ab"}, {pair: x for x in "ab"}


class Ordered:
    """Has an order that only C code gets."""

    def __init__(self, order):
        self.order = order

    def __repr__(self):
        return f"Ordered({self.order})"


@program(lambda: ([Ordered([2]), Ordered([1])], [([2], 0), ([1], 1)], {"a": [2], "b": [1]}))
def order_by_getters(objects, pairs, names):
    return (
        sorted(objects, key=operator.attrgetter("order")), min(pairs, key=operator.itemgetter(0)),
        max(names, key=names.get), sorted(names, key=str.upper), sorted(names.items(), key=operator.itemgetter(1)),
    )  # fmt: skip
