"""Type parameters (Python 3.12 and later)."""

from ._programs import program

OUTSIDE = int


@program(lambda: ([1, 2],))
def generic_function(values):
    def first[T](items: list[T], default: T = None) -> T:
        return items[0] if items else default

    return first(values), [p.__name__ for p in first.__type_params__]


@program(lambda: ([1],), facts=False)
def generic_bounds(values):
    def bounded[T: int, S: (int, str), *Ts, **P](a: T, b: S, *rest: *Ts) -> T:
        return a

    type Pair[T] = tuple[T, T]
    return bounded(values[0], "b"), Pair.__name__


@program(lambda: (3,), facts=False)
def generic_class(value):
    class Box[T]:
        kind = value

        def get(self) -> T:
            return self.kind

    return Box().get(), Box.__name__


@program(lambda: (3,))
def generic_method(value):
    class Local:
        inside = str

        def get[T](self, a: OUTSIDE, b: inside, c: T) -> type(value):
            return a

    return Local().get(value, "", None), Local.get.__annotations__["a"], Local.get.__annotations__["b"]
