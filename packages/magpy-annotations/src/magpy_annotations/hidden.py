"""Names for the types of the interpreter that no module exports, so that annotations can speak of their methods."""

from __future__ import annotations

import functools
import itertools
import types

callable_iterator: type = type(iter(int, 1))
bytearray_iterator: type = type(iter(bytearray()))
bytes_iterator: type = type(iter(b""))
dict_items: type = type({}.items())
dict_itemiterator: type = type(iter({}.items()))
dict_keyiterator: type = type(iter({}))
dict_keys: type = type({}.keys())
dict_reverseitemiterator: type = type(reversed({}.items()))
dict_reversekeyiterator: type = type(reversed({}))
dict_reversevalueiterator: type = type(reversed({}.values()))
dict_valueiterator: type = type(iter({}.values()))
dict_values: type = type({}.values())
list_iterator: type = type(iter([]))
list_reverseiterator: type = type(reversed([]))
longrange_iterator: type = type(iter(range(1 << 80)))
range_iterator: type = type(iter(range(0)))
sequence_iterator: type = type(iter(type("Sequence", (), {"__getitem__": lambda self, index: index})()))
set_iterator: type = type(iter(set()))
str_ascii_iterator: type = type(iter(""))
str_iterator: type = type(iter("\u00e9"))
tuple_iterator: type = type(iter(()))
memory_iterator: type = type(iter(memoryview(b"")))

builtin_function_or_method: type = types.BuiltinFunctionType
cell: type = types.CellType
classmethod_descriptor: type = types.ClassMethodDescriptorType
code: type = types.CodeType
coroutine: type = types.CoroutineType
function: type = types.FunctionType
generator: type = types.GeneratorType
getset_descriptor: type = types.GetSetDescriptorType
mappingproxy: type = types.MappingProxyType
member_descriptor: type = types.MemberDescriptorType
method: type = types.MethodType
method_descriptor: type = types.MethodDescriptorType
method_wrapper: type = types.MethodWrapperType
module: type = types.ModuleType
wrapper_descriptor: type = types.WrapperDescriptorType
NoneType: type = type(None)
ellipsis: type = type(...)
NotImplementedType: type = type(NotImplemented)
traceback: type = types.TracebackType
frame: type = types.FrameType
SimpleNamespace: type = types.SimpleNamespace
GenericAlias: type = types.GenericAlias
UnionType: type = types.UnionType

grouper: type = type(next(itertools.groupby("a"))[1])
tee: type = type(itertools.tee(())[0])
lru_cache_wrapper: type = type(functools.lru_cache(lambda: None))
cmp_key: type = type(functools.cmp_to_key(lambda a, b: 0)(0))
