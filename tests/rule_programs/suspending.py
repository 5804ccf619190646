"""Generators and coroutines."""

from ._programs import program


def count(start, stop):
    while start < stop:
        got = yield start
        if got:
            start = got
        else:
            start += 1
    return "end"


def delegate(values):
    yield 0
    got = yield from count(1, 3)
    yield from values
    return got


@program(lambda: ([7, 8],))
def generators(values):
    result = list(delegate(values))
    made = count(1, 9)
    first = next(made)
    sent = made.send(7)
    made.close()
    return result, first, sent, list(x * y for x in values for y in count(0, 2))


def careful(values):
    try:
        for value in values:
            yield value
    except ValueError as error:
        yield repr(error)
    finally:
        values.append("closed")


@program(lambda: ([1, 2],))
def generator_throw(values):
    made = careful(values)
    first = next(made)
    return first, made.throw(ValueError("in")), list(made)


def outer(values):
    yield from careful(values)


@program(lambda: ([1, 2],))
def generator_throw_delegated(values):
    made = outer(values)
    return next(made), made.throw(ValueError("in"))


def stops():
    yield 1
    raise StopIteration


@program()
def generator_stop():
    try:
        return list(stops())
    except RuntimeError as error:
        return str(error)


@program(lambda: (iter([1, 2]),))
def generator_argument(values):
    return next(values)


@program(lambda: (iter([1, 2, 3]), enumerate(iter((1, 2)), 5)))
def iterator_arguments(values, numbered):
    for value in values:
        if value == 2:
            break
    return value, [index for index, _ in numbered]


class Awaited:
    def __init__(self, value):
        self.value = value

    def __await__(self):
        got = yield self.value
        return got


class Asynchronous:
    def __init__(self, stop):
        self.stop = stop

    async def __aenter__(self):
        return await Awaited("enter")

    async def __aexit__(self, *exception):
        return await Awaited("exit")

    def __aiter__(self):
        self.i = 0
        return self

    async def __anext__(self):
        self.i += 1
        if self.i > self.stop:
            raise StopAsyncIteration
        return await Awaited(self.i)


def drive(coroutine):
    found = []
    sent = None
    try:
        while True:
            found.append(coroutine.send(sent))
            sent = len(found)
    except StopIteration as stop:
        return found, stop.value


async def waits(value):
    return await Awaited(value), await Awaited(value + 1)


async def enters():
    async with Asynchronous(1) as entered:
        return entered


async def fails():
    async with Asynchronous(1):
        raise ValueError


async def iterates():
    return [value async for value in Asynchronous(2)]


async def yields():
    yield 1
    yield await Awaited(5)


async def collects():
    found = []
    async for value in yields():
        found.append(value)
    return found


@program()
def asynchronous():
    return drive(waits(3)), drive(enters()), drive(fails()), drive(iterates()), drive(collects())


async def returns(value):
    return value * 2


@program(lambda: (4,))
def coroutine_plain(value):
    return drive(returns(value))


@program()
def coroutine_throw():
    coroutine = waits(1)
    coroutine.send(None)
    try:
        coroutine.throw(KeyError("in"))
    except KeyError as error:
        return error.args
