"""Generators, coroutines and comprehensions: captured, they do what they do natively, and each before has its after."""

import asyncio
import contextlib
import types

import pytest

PROGRAMS = {}


def program(function):
    """Registers a function without arguments whose result (or exception) is compared."""
    PROGRAMS[function.__name__] = function
    return function


@program
def generator_send_throw_close():
    log = []

    def gen(n):
        for i in range(n):
            try:
                got = yield i
                log.append(got)
            except KeyError as error:
                log.append(repr(error))
                yield "caught"
            finally:
                log.append("finally")

    it = gen(3)
    log.append(next(it))
    log.append(it.send("sent"))
    log.append(it.throw(KeyError("k")))
    it.close()
    fresh = gen(1)
    fresh.close()
    with contextlib.suppress(ValueError):
        gen(1).throw(ValueError("never started"))
    return log, list(gen(4))


@program
def generator_return_value():
    def inner():
        x = yield 1
        return x * 2

    def outer():
        y = yield from inner()
        yield y

    it = outer()
    return next(it), it.send(21), list(it)


@program
def throw_into_delegating_generator_caught_inside():
    def inner():
        try:
            yield 1
        except ValueError:
            return "caught"

    def outer():
        x = yield from inner()
        a = [x]
        y = yield a
        return y

    it = outer()
    next(it)
    return it.throw(ValueError), list(it)


@program
def throw_into_delegating_generator_goes_on():
    def inner():
        while True:
            try:
                yield 1
            except ValueError:
                yield 2
            except KeyError:
                raise LookupError("inner") from None

    def outer():
        try:
            yield from inner()
        except LookupError as error:
            yield str(error)
        return 5

    it = outer()
    return next(it), it.throw(ValueError), next(it), it.throw(KeyError), list(it)


@program
def close_of_delegating_generator():
    log = []

    def inner():
        try:
            yield 1
        finally:
            log.append("inner")

    def outer():
        try:
            yield from inner()
        finally:
            log.append("outer")

    it = outer()
    next(it)
    it.close()
    return log


@program
def generator_ignores_exit():
    def gen():
        try:
            yield 1
        except GeneratorExit:
            yield 2

    it = gen()
    next(it)
    it.close()


@program
def generator_raises_stop_iteration():
    def gen():
        yield 1
        raise StopIteration(3)

    return list(gen())


@program
def generator_left_alone():
    def gen():
        yield from range(3)

    it = gen()
    next(it)
    return next(it)


@program
def generator_expressions():
    return sum(x * x for x in range(5)), list(x for x in (y for y in "ab")), any(x > 2 for x in range(9))


@program
def recursion_of_generators():
    def walk(n):
        if n:
            yield from walk(n - 1)
            yield n
            yield from walk(n - 1)

    return list(walk(5))


@program
def coroutines_by_hand():
    class Awaitable:
        def __init__(self, value):
            self.value = value

        def __await__(self):
            got = yield self.value
            return got

    class Manager:
        async def __aenter__(self):
            return await Awaitable("aenter")

        async def __aexit__(self, *exc):
            await Awaitable("aexit")
            return exc[0] is KeyError

    async def agen(n):
        for i in range(n):
            got = yield i
            if got:
                yield got

    async def inner(x):
        try:
            return await Awaitable(x) + 1
        except ValueError:
            return -1

    async def main():
        out = [await inner(1), await inner(2)]
        async with Manager() as m:
            out.append(m)
            raise KeyError
        async for i in agen(3):
            out.append(i)
        out.append([i async for i in agen(2)])
        out.append([await inner(i) for i in range(2)])
        return out

    def drive(coroutine, throw_at=()):
        sent = []
        value = None
        try:
            while True:
                if len(sent) in throw_at:
                    sent.append("throw")
                    coroutine.throw(ValueError)
                    value = 10
                    continue
                sent.append(coroutine.send(value))
                value = 10
        except StopIteration as stop:
            return sent, stop.value

    return drive(main()), drive(main(), throw_at=(1,))


@program
def asyncio_runs():
    async def work(n, lock):
        async with lock:
            await asyncio.sleep(0)
            if n == 2:
                raise ValueError(n)
            return n

    async def main():
        lock = asyncio.Lock()
        got = await asyncio.gather(*(work(i, lock) for i in range(4)), return_exceptions=True)
        task = asyncio.ensure_future(asyncio.sleep(10))
        await asyncio.sleep(0)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            got.append("cancelled")
        return [repr(x) for x in got]

    return asyncio.run(main())


@program
def async_generator_protocol():
    async def agen():
        try:
            x = yield 1
            yield x
        except ValueError:
            yield "caught"
        finally:
            log.append("final")

    async def main():
        it = agen()
        log.append(await it.asend(None))
        log.append(await it.asend(5))
        log.append(await it.athrow(ValueError))
        await it.aclose()
        async for x in agen():
            log.append(x)
            break

    log = []
    asyncio.run(main())
    return log


@program
def comprehensions():
    data = range(4)
    k = 10
    return (
        [x + k for x in data if x % 2],
        {x: k for x in data},
        {x % 2 for x in data},
        [(a, b) for a in data for b in range(a)],
        [[y for y in range(x)] for x in data],
        [f(1) for f in [lambda v, i=i: v + i for i in data]],
        [x for x in data if (y := x)] + [y],
    )


@program
def comprehension_raises():
    x = "outer"
    try:
        [1 // x for x in (1, 0)]
    except ZeroDivisionError:
        return x


@program
def types_module_coroutine():
    @types.coroutine
    def old():
        x = yield 1
        return x

    async def new():
        return await old()

    c = new()
    c.send(None)
    try:
        c.send(7)
    except StopIteration as stop:
        return stop.value


@pytest.mark.parametrize("name", PROGRAMS)
def test_same_as_native(name, same_as_native):
    same_as_native(PROGRAMS[name])


@pytest.mark.parametrize("name", PROGRAMS)
def test_skipping_everything(name, same_without_a_plan):
    same_without_a_plan(PROGRAMS[name])
