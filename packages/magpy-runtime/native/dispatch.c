/* The dispatcher: a call of a compiled callable that a record serves, without Python.
 *
 *   Record slots    the part of a record that is read here: guard, mock, compiled graph, the native guard (steps.c)
 *   Cache slots     the records of a callable, most recent first
 *   Dispatcher      base class of what serves a callable's calls
 *
 * Whatever is not served here goes to the method `serve(args, kwargs)`, which is written in Python and can do everything:
 * no record, one without a native guard, a thread that records, a guard or a graph that raises. A record whose mock does
 * more goes to `serve_found(record, bound, args, kwargs)` once its guard has passed; one that raises, to
 * `call_failed(record, args, kwargs, error)`. What comes behind a record that ends at a boundary is chain.c's. */
#include "dispatch.h"

#include <structmember.h>

typedef struct {
    PyObject_HEAD
    Py_ssize_t hits;
} CountSlots;

static PyTypeObject CountSlotsType;
static PyObject *name_serve, *name_serve_found, *name_call_failed;
static MP_THREAD_LOCAL bool recording;

/* -- the dispatcher --------------------------------------------------------------------------------------------------- */

static PyObject *
serve_slowly(Dispatcher *self, const Call *call)
{
    PyObject *args = mp_call_args(call), *kwargs = mp_call_kwargs(call), *result = NULL;
    if (args != NULL && kwargs != NULL) {
        PyObject *stack[3] = {(PyObject *)self, args, kwargs};
        result = PyObject_VectorcallMethod(name_serve, stack, 3 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    }
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    return result;
}

static PyObject *
serve_found(Dispatcher *self, PyObject *record, PyObject *bound, const Call *call)
{
    PyObject *args = mp_call_args(call), *kwargs = mp_call_kwargs(call), *result = NULL;
    if (args != NULL && kwargs != NULL && bound != NULL) {
        PyObject *stack[5] = {(PyObject *)self, record, bound, args, kwargs};
        result = PyObject_VectorcallMethod(name_serve_found, stack, 5 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    }
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    return result;
}

/* Put a record in front of the others, unless somebody changed them meanwhile. */
void
mp_move_to_front(CacheSlots *cache, PyObject *records, Py_ssize_t at)
{
    Py_ssize_t count = PyTuple_GET_SIZE(records);
    PyObject *moved = PyTuple_New(count);
    if (moved == NULL || cache->records != records) {
        PyErr_Clear();
        Py_XDECREF(moved);
        return;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_ssize_t from = i == 0 ? at : i <= at ? i - 1 : i;
        PyTuple_SET_ITEM(moved, i, Py_NewRef(PyTuple_GET_ITEM(records, from)));
    }
    Py_SETREF(cache->records, moved);
}

/* A record has served a whole call. */
void
mp_count_hit(Dispatcher *self)
{
    if (self->statistics != NULL && PyObject_TypeCheck(self->statistics, &CountSlotsType)) {
        ((CountSlots *)self->statistics)->hits++;
    }
}

static bool
is_direct(const RecordSlots *record, const NativeGuard *native)
{
    return native != NULL && native->direct && record->run != NULL &&
           (record->run != Py_None || native->output_count == 0);
}

/* Whether running its mock is all that serving a call by a record takes. */
bool
mp_is_plain(const RecordSlots *record, const NativeGuard *native)
{
    if (record->plain && record->mock != NULL) {
        return true;
    }
    return is_direct(record, native) && (record->boundary == NULL || record->boundary == Py_None);
}

/* What a record's mock gives. Either its native guard has filled the registers, or `bound` is what the guard has given. */
PyObject *
mp_record_run(RecordSlots *record, NativeGuard *native, PyObject *const *registers, PyObject *bound)
{
    PyObject *result = NULL;
    if (is_direct(record, native)) {
        PyObject *run = Py_NewRef(record->run);
        bool begun;
        result = mp_guard_run(native, run, registers, &begun);
        Py_DECREF(run);
        if (result != NULL || record->mock == NULL || begun ||
            (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception))) {
            return result;
        }
        PyErr_Clear();      /* nothing has changed: the mock itself fails, with a traceback that tells where */
    }
    PyObject *mock = Py_NewRef(record->mock), *run = Py_NewRef(record->run != NULL ? record->run : Py_None);
    PyObject *given = bound != NULL ? Py_NewRef(bound) : mp_guard_bound(native, registers);
    if (given != NULL) {
        PyObject *stack[3] = {NULL, given, run};
        result = PyObject_Vectorcall(mock, stack + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
        Py_DECREF(given);
    }
    Py_DECREF(mock);
    Py_DECREF(run);
    return result;
}

/* A record's mock has raised. */
static PyObject *
call_failed(Dispatcher *self, RecordSlots *record, const Call *call)
{
    PyObject *error = mp_take_error();
    PyObject *args = mp_call_args(call), *kwargs = mp_call_kwargs(call), *result = NULL;
    if (args != NULL && kwargs != NULL) {
        PyObject *stack[5] = {(PyObject *)self, (PyObject *)record, args, kwargs, error};
        result = PyObject_VectorcallMethod(name_call_failed, stack, 5 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    }
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    Py_DECREF(error);
    return result;
}

/* A call that a record's guard has let pass; takes the registers. */
static PyObject *
serve_record(Dispatcher *self, RecordSlots *record, NativeGuard *native, Call *call, PyObject **registers)
{
    PyObject *result;
    if (!mp_is_plain(record, native)) {
        PyObject *bound = mp_guard_bound(native, registers);
        mp_drop(registers, native->registers);
        result = serve_found(self, (PyObject *)record, bound, call);
        Py_XDECREF(bound);
        return result;
    }
    result = mp_record_run(record, native, registers, NULL);
    mp_drop(registers, native->registers);
    if (result == NULL) {
        if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception)) {
            return NULL;
        }
        if (record->mock != NULL && PyErr_Occurred()) {
            return call_failed(self, record, call);
        }
        PyErr_Clear();
        return serve_slowly(self, call); /* nothing has changed, so it fails there once more and is dealt with */
    }
    record->hits++;
    if (record->boundary == NULL || record->boundary == Py_None) {
        mp_count_hit(self);
        return result;
    }
    PyObject *site = Py_NewRef(record->boundary);
    result = mp_go_on(self, site, result, record->steady && native->asks_modes ? native->modes : NULL);
    Py_DECREF(site);
    return result;
}

/* Serve a call by a dispatcher. */
PyObject *
mp_dispatch(PyObject *dispatcher, Call *call)
{
    Dispatcher *self = (Dispatcher *)dispatcher;
    if (recording || self->cache == NULL || !PyObject_TypeCheck(self->cache, &mp_CacheSlotsType)) {
        return serve_slowly(self, call);
    }
    PyObject *records = ((CacheSlots *)self->cache)->records;
    if (records == NULL || !PyTuple_CheckExact(records)) {
        return serve_slowly(self, call);
    }
    Py_INCREF(records);
    PyObject *registers[MAX_REGISTERS];
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(records); i++) {
        RecordSlots *record = (RecordSlots *)PyTuple_GET_ITEM(records, i);
        if (!PyObject_TypeCheck((PyObject *)record, &mp_RecordSlotsType) || record->native == NULL ||
            !Py_IS_TYPE(record->native, &mp_NativeGuardType)) {
            break;
        }
        NativeGuard *native = (NativeGuard *)Py_NewRef(record->native);
        Py_ssize_t failed;
        int held = mp_guard_call(native, call, NULL, registers, &failed);
        if (held >= 0 && native->strict != NULL && mp_guard_check(native, call, registers, held, failed) < 0) {
            mp_drop(registers, native->registers);
            Py_DECREF(native);
            Py_DECREF(records);
            return NULL;
        }
        if (held > 0) {
            Py_INCREF(record);
            if (i > 0) {
                mp_move_to_front((CacheSlots *)self->cache, records, i);
            }
            Py_DECREF(records);
            PyObject *result = serve_record(self, record, native, call, registers);
            Py_DECREF(record);
            Py_DECREF(native);
            return result;
        }
        mp_drop(registers, native->registers);
        Py_DECREF(native);
        if (held < 0) {
            if (!PyErr_ExceptionMatches(PyExc_Exception)) {
                Py_DECREF(records);
                return NULL;
            }
            PyErr_Clear();
            break;
        }
    }
    Py_DECREF(records);
    return serve_slowly(self, call);
}

/* dispatch(args, kwargs): serve a call. */
static PyObject *
dispatcher_dispatch(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2 || !PyTuple_Check(args[0]) || !PyDict_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "dispatch(args, kwargs)");
        return NULL;
    }
    Call call = {.args = ((PyTupleObject *)args[0])->ob_item, .count = PyTuple_GET_SIZE(args[0]), .kwargs = args[1]};
    return mp_dispatch(self, &call);
}

static int
dispatcher_traverse(PyObject *object, visitproc visit, void *arg)
{
    Dispatcher *self = (Dispatcher *)object;
    Py_VISIT(self->cache);
    Py_VISIT(self->statistics);
    Py_VISIT(self->fresh);
    return 0;
}

static int
dispatcher_clear(PyObject *object)
{
    Dispatcher *self = (Dispatcher *)object;
    Py_CLEAR(self->cache);
    Py_CLEAR(self->statistics);
    Py_CLEAR(self->fresh);
    return 0;
}

/* Every type here is made by its Python subclass's __init__. */
static PyObject *
slots_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs))
{
    return type->tp_alloc(type, 0);
}

static void
dispatcher_dealloc(PyObject *object)
{
    PyObject_GC_UnTrack(object);
    dispatcher_clear(object);
    Py_TYPE(object)->tp_free(object);
}

static PyMethodDef dispatcher_methods[] = {
    {"dispatch", (PyCFunction)(void (*)(void))dispatcher_dispatch, METH_FASTCALL,
     "dispatch(args, kwargs, /)\n--\n\nServe a call from a record, or by `serve`."},
    {"go_on", (PyCFunction)(void (*)(void))mp_dispatcher_go_on, METH_FASTCALL,
     "go_on(site, box, /)\n--\n\nServe the rest of a call behind a segment that ended at a boundary."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef dispatcher_members[] = {
    {"cache", T_OBJECT_EX, offsetof(Dispatcher, cache), 0, "The records."},
    {"statistics", T_OBJECT_EX, offsetof(Dispatcher, statistics), 0, "How calls were served."},
    {"fresh", T_OBJECT, offsetof(Dispatcher, fresh), 0, "The operation whose outcome nobody holds but the program, or None."},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject mp_DispatcherType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "magpy_runtime._native.Dispatcher",
    .tp_basicsize = sizeof(Dispatcher),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .tp_doc = "Base of what serves the calls of a compiled callable.",
    .tp_new = slots_new,
    .tp_dealloc = dispatcher_dealloc,
    .tp_traverse = dispatcher_traverse,
    .tp_clear = dispatcher_clear,
    .tp_methods = dispatcher_methods,
    .tp_members = dispatcher_members,
};

/* -- slots ------------------------------------------------------------------------------------------------------------ */

static int
record_traverse(PyObject *object, visitproc visit, void *arg)
{
    RecordSlots *self = (RecordSlots *)object;
    Py_VISIT(self->guard);
    Py_VISIT(self->mock);
    Py_VISIT(self->run);
    Py_VISIT(self->boundary);
    Py_VISIT(self->native);
    return 0;
}

static int
record_clear(PyObject *object)
{
    RecordSlots *self = (RecordSlots *)object;
    Py_CLEAR(self->guard);
    Py_CLEAR(self->mock);
    Py_CLEAR(self->run);
    Py_CLEAR(self->boundary);
    Py_CLEAR(self->native);
    return 0;
}

static void
record_dealloc(PyObject *object)
{
    PyObject_GC_UnTrack(object);
    record_clear(object);
    Py_TYPE(object)->tp_free(object);
}

static PyMemberDef record_members[] = {
    {"hits", T_PYSSIZET, offsetof(RecordSlots, hits), 0, "Calls that the record served."},
    {"plain", T_BOOL, offsetof(RecordSlots, plain), 0, "Whether running the mock is all that serving a call takes."},
    {"steady", T_BOOL, offsetof(RecordSlots, steady), 0, "Whether it leaves torch's modes as they are."},
    {"guard", T_OBJECT, offsetof(RecordSlots, guard), 0, "The guard in Python."},
    {"mock", T_OBJECT, offsetof(RecordSlots, mock), 0, "The mock."},
    {"run", T_OBJECT, offsetof(RecordSlots, run), 0, "The compiled graph, or None."},
    {"boundary", T_OBJECT, offsetof(RecordSlots, boundary), 0, "The boundary at which it ends, or None."},
    {"native", T_OBJECT, offsetof(RecordSlots, native), 0, "The native guard, or None."},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject mp_RecordSlotsType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "magpy_runtime._native.RecordSlots",
    .tp_basicsize = sizeof(RecordSlots),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .tp_doc = "The part of a record that the dispatcher reads.",
    .tp_new = slots_new,
    .tp_dealloc = record_dealloc,
    .tp_traverse = record_traverse,
    .tp_clear = record_clear,
    .tp_members = record_members,
};

static PyMemberDef count_members[] = {
    {"hits", T_PYSSIZET, offsetof(CountSlots, hits), 0, "Calls that records served."},
    {NULL, 0, 0, 0, NULL},
};

static PyTypeObject CountSlotsType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "magpy_runtime._native.CountSlots",
    .tp_basicsize = sizeof(CountSlots),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_doc = "The counts that the dispatcher keeps.",
    .tp_new = slots_new,
    .tp_members = count_members,
};

static int
cache_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(((CacheSlots *)object)->records);
    return 0;
}

static int
cache_clear(PyObject *object)
{
    Py_CLEAR(((CacheSlots *)object)->records);
    return 0;
}

static void
cache_dealloc(PyObject *object)
{
    PyObject_GC_UnTrack(object);
    cache_clear(object);
    Py_TYPE(object)->tp_free(object);
}

static PyMemberDef cache_members[] = {
    {"records", T_OBJECT_EX, offsetof(CacheSlots, records), 0, "The records, most recent first."},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject mp_CacheSlotsType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "magpy_runtime._native.CacheSlots",
    .tp_basicsize = sizeof(CacheSlots),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .tp_doc = "The part of a record cache that the dispatcher reads.",
    .tp_new = slots_new,
    .tp_dealloc = cache_dealloc,
    .tp_traverse = cache_traverse,
    .tp_clear = cache_clear,
    .tp_members = cache_members,
};

/* -- the module ------------------------------------------------------------------------------------------------------- */

/* set_recording(flag): whether this thread records a run; then calls of compiled callables go to `serve`. */
static PyObject *
set_recording(PyObject *Py_UNUSED(module), PyObject *flag)
{
    int value = PyObject_IsTrue(flag);
    if (value < 0) {
        return NULL;
    }
    recording = value;
    Py_RETURN_NONE;
}

static PyObject *
is_recording(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    return PyBool_FromLong(recording);
}

static PyMethodDef functions[] = {
    {"set_recording", set_recording, METH_O, "set_recording(flag, /)\n--\n\nSay whether this thread records a run."},
    {"is_recording", is_recording, METH_NOARGS, "is_recording()\n--\n\nWhether this thread records a run."},
    {NULL, NULL, 0, NULL},
};

/* Add the types and functions of this file to the module. */
int
mp_dispatch_ready(PyObject *module)
{
    PyTypeObject *types[] = {&mp_DispatcherType, &mp_RecordSlotsType, &CountSlotsType, &mp_CacheSlotsType, &mp_NativeGuardType,
                             &mp_TwinSlotsType,  &mp_TwinCallType};
    for (size_t i = 0; i < Py_ARRAY_LENGTH(types); i++) {
        if (PyType_Ready(types[i]) < 0 || PyModule_AddType(module, types[i]) < 0) {
            return -1;
        }
    }
    /* So that dataclasses with slots make none of their own for these. */
    PyObject *slots = Py_BuildValue("(ssssssss)", "hits", "plain", "steady", "guard", "mock", "run", "boundary", "native"), *hits = Py_BuildValue("(s)", "hits");
    int done = slots != NULL && hits != NULL &&
               PyDict_SetItemString(mp_RecordSlotsType.tp_dict, "__slots__", slots) == 0 &&
               PyDict_SetItemString(CountSlotsType.tp_dict, "__slots__", hits) == 0;
    Py_XDECREF(slots);
    Py_XDECREF(hits);
    name_serve = PyUnicode_InternFromString("serve");
    name_serve_found = PyUnicode_InternFromString("serve_found");
    name_call_failed = PyUnicode_InternFromString("call_failed");
    if (!done || name_serve == NULL || name_serve_found == NULL || name_call_failed == NULL) {
        return -1;
    }
    PyType_Modified(&mp_RecordSlotsType);
    PyType_Modified(&CountSlotsType);
    return PyModule_AddFunctions(module, functions) < 0 ? -1 : mp_chain_ready(module);
}
