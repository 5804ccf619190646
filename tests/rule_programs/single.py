"""Programs in which one instruction alone reads what is recorded, so that its rule cannot be missed."""

from ._programs import program


class Whole(int):
    pass


@program(lambda: (Whole(3),))
def single_negative(number):
    return -number


@program(lambda: (Whole(3),))
def single_positive(number):
    return +number


@program(lambda: (Whole(3),))
def single_invert(number):
    return ~number


@program(lambda: ([], []))
def single_is(values, others):
    return values is others


@program(lambda: ([1],))
def single_not(values):
    return not values


@program(lambda: ([1],))
def single_and(values):
    return (values and 2) is None


@program(lambda: ([],))
def single_or(values):
    return (values or 2) is None


@program(lambda: ([1],))
def single_if(values):
    if values:
        return 1


@program(lambda: ([1],))
def single_if_not(values):
    if not values:
        return 1


@program(lambda: ([], [1], [[2], []]))
def single_while(empty, values, lists):
    found = []
    step = lists[0]
    while step:
        found.append(1)
        step = lists[len(found)]
    step = empty
    while not step:
        found.append(2)
        step = values
    return found


@program(lambda: ([1, 2],))
def single_yield_from(values):
    def inner():
        yield from values

    return list(inner())


@program(lambda: ([1],))
def single_list_extend(values):
    return [*values]


@program(lambda: ({1},))
def single_set_update(members):
    return {*members, 2}


@program(lambda: ({"a": 1},))
def single_dict_update(names):
    return {**names}


@program(lambda: ((1, 2),))
def single_build_set(pair):
    return {pair}


@program(lambda: ((1, 2),))
def single_build_map(pair):
    return {pair: 1}


@program(lambda: ((1, 2),))
def single_set_add(pair):
    return {pair for _ in "ab"}


@program(lambda: ((1, 2),))
def single_map_add(pair):
    return {pair: letter for letter in "ab"}


@program(lambda: ({"kind": 1, "other": 2},))
def single_match_keys(names):
    match names:
        case {"kind": kind}:
            return kind


@program(lambda: ([1, 2],))
def single_length(values):
    match values:
        case [_, _]:
            return True


@program(lambda: ([1, 2],))
def single_format(values):
    return f"{values}"


@program(lambda: ([1, 2],))
def single_format_repr(values):
    return f"{values!r}"


@program(lambda: ((1, 2),))
def single_unpack(pair):
    a, b = pair
    return b


@program(lambda: ((1, 2),))
def single_unpack_star(pair):
    a, *b = pair
    return b


@program(lambda: ((ValueError, KeyError),))
def single_except(classes):
    try:
        raise KeyError
    except classes:
        return True


@program(lambda: ((ValueError, KeyError),))
def single_except_group(classes):
    try:
        raise ExceptionGroup("group", [KeyError()])
    except* classes:
        pass


class Problem(Exception):
    pass


@program()
def single_raise():
    try:
        raise Problem
    except Exception:
        return True


def made(value):
    def inner():
        class Local:
            field = value

        return Local.field

    return inner


@program(lambda: (made(5),))
def single_class_cell(function):
    return function()
