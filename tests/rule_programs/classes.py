"""Classes that are made in a function."""

from ._programs import program

OUTSIDE = "global"


class Parent:
    def greet(self):
        return "hello"


@program(lambda: (2,))
def class_body(value):
    class Local:
        """A class."""

        field: int = value
        other = OUTSIDE
        squares = [i * i for i in range(3)]
        temporary = field
        del temporary

        def method(self):
            return self.field + value

        @property
        def double(self):
            return self.field * 2

        @classmethod
        def make(cls):
            return cls()

    made = Local.make()
    return made.method(), made.double, Local.other, Local.squares, Local.__annotations__


@program(lambda: (Parent(),))
def class_derived(parent):
    class Child(Parent):
        def greet(self):
            return super().greet() + "!"

    return Child().greet(), parent.greet()


@program(lambda: (1,))
def class_scopes(value):
    OUTSIDE = "local"
    value = value + 1

    class Scopes:
        value = value
        OUTSIDE = OUTSIDE
        if value > 5:
            made = 1
        later = [value for _ in range(1)]

        class Inner:
            outside = OUTSIDE
            value = len("abc")

    return Scopes.value, Scopes.OUTSIDE, Scopes.Inner.outside, Scopes.Inner.value, Scopes.later


class Registered:
    names = []

    def __init_subclass__(cls, /, label, **others):
        super().__init_subclass__(**others)
        cls.label = label


@program()
def class_keywords():
    class Labelled(Registered, label="yes"):
        pass

    return Labelled.label


class Slots:
    __slots__ = ("a", "b")

    def __init__(self, a):
        self.a = a

    def __repr__(self):
        return f"Slots({self.a})"


@program(lambda: (Slots(1),))
def class_slots(slots):
    slots.b = slots.a + 1
    slots.a = 5
    del slots.b
    return slots.a


class Attributed:
    def __getattr__(self, name):
        return name

    def __setattr__(self, name, value):
        object.__setattr__(self, name, value)

    def __delattr__(self, name):
        object.__delattr__(self, name)

    def __repr__(self):
        return f"Attributed({self.__dict__})"


@program(lambda: (Attributed(),))
def class_hooks(attributed):
    attributed.a = 1
    attributed.b = 2
    del attributed.b
    return attributed.a, attributed.missing


class Described:
    def __set_name__(self, owner, name):
        self.name = name
        owner.described = name

    def __get__(self, instance, owner):
        return self if instance is None else instance.__dict__[self.name]

    def __set__(self, instance, value):
        instance.__dict__[self.name] = value


@program(lambda: (5,))
def class_descriptors(value):
    class Local:
        field = Described()

    local = Local()
    local.field = value
    return local.field, Local.described


class Gathering(type):
    names = {}

    @classmethod
    def __prepare__(meta, name, bases, **options):
        return meta.names

    def __new__(meta, name, bases, names, **options):
        return super().__new__(meta, name, bases, dict(names))


@program(reset=Gathering.names.clear)
def class_namespace():
    class Local(metaclass=Gathering):
        field = 1

    return Local.field


class Meta(type):
    def __call__(cls, *args):
        return [super().__call__(*args)]

    def __instancecheck__(cls, instance):
        return True


class Made(metaclass=Meta):
    def __init__(self, value):
        self.value = value

    def __repr__(self):
        return f"Made({self.value})"


@program()
def class_metaclass():
    class Sub(Made):
        pass

    return Made(1), type(Sub(2)[0]) is Sub


@program()
def pattern_of_metaclass():
    match 1:
        case Made():
            return True


@program()
def super_wrong():
    class Wrong(Parent):
        def greet(self):
            self = 1  # noqa: F841
            return super().greet()

    try:
        Wrong().greet()
    except TypeError:
        return "not an instance"


@program()
def super_replaced():
    super = lambda *args: Parent()

    class Other(Parent):
        def greet(self):
            return super().greet() + "?"

    return Other().greet()
