/* The call of a compiled module: `__call__` of its class, without Python where its dispatcher needs none.
 *
 * A compiled module holds its state in a slot: what it was made of, that one's class when it was last looked at, and the
 * dispatcher. Where anything is not as usual the function in Python serves the call. */
#include "dispatch.h"

#include <structmember.h>

typedef struct {
    PyObject_HEAD
    PyObject *module;       /* owned or NULL; the original */
    PyObject *base;         /* owned or NULL; its class */
    PyObject *call;         /* owned or NULL; the dispatcher */
} TwinSlots;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *python;       /* owned; the same as a function */
    PyObject *slot;         /* owned; the descriptor of the slot with the state */
    PyObject *follow;       /* owned; called with module and state when the original's class changed */
    PyObject *strip;        /* owned; called with an exception that leaves */
} TwinCall;

/* The state of a compiled module (borrowed), NULL where all is not as usual. */
static TwinSlots *
state_of(const TwinCall *self, PyObject *twin)
{
    PyMemberDescrObject *slot = (PyMemberDescrObject *)self->slot;
    if (!PyObject_TypeCheck(twin, slot->d_common.d_type)) {
        return NULL;
    }
    PyObject *state = *(PyObject **)((char *)twin + slot->d_member->offset);
    if (state == NULL || !PyObject_TypeCheck(state, &mp_TwinSlotsType)) {
        return NULL;
    }
    TwinSlots *found = (TwinSlots *)state;
    bool usual = found->module != NULL && (PyObject *)Py_TYPE(found->module) == found->base && found->call != NULL &&
                 PyObject_TypeCheck(found->call, &mp_DispatcherType);
    return usual ? found : NULL;
}

/* Take MagPy's frames out of the exception that is set. */
static void
strip_raised(const TwinCall *self)
{
    PyObject *error = mp_take_error();
    Py_XDECREF(PyObject_CallOneArg(self->strip, error));
    PyErr_Clear();
#if PY_VERSION_HEX >= 0x030C0000
    PyErr_SetRaisedException(error);
#else
    PyErr_Restore(Py_NewRef(Py_TYPE(error)), error, PyException_GetTraceback(error));
#endif
}

static PyObject *
twin_vectorcall(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *names)
{
    TwinCall *self = (TwinCall *)object;
    Py_ssize_t count = PyVectorcall_NARGS(nargsf);
    TwinSlots *state = count > 0 ? state_of(self, args[0]) : NULL;
    if (state == NULL) {
        return PyObject_Vectorcall(self->python, args, nargsf & ~PY_VECTORCALL_ARGUMENTS_OFFSET, names);
    }
    Py_INCREF(state);
    PyObject *dispatcher = Py_NewRef(state->call);
    Call call = {.args = args + 1, .count = count - 1, .names = names};
    PyObject *result = mp_dispatch(dispatcher, &call);
    Py_DECREF(dispatcher);
    if (result == NULL) {
        strip_raised(self);
    }
    else if (state->module == NULL || (PyObject *)Py_TYPE(state->module) != state->base) {
        PyObject *done = PyObject_CallFunctionObjArgs(self->follow, args[0], state, NULL);
        if (done == NULL) {
            Py_CLEAR(result);
        }
        Py_XDECREF(done);
    }
    Py_DECREF(state);
    return result;
}

/* TwinCall(python, slot, follow, strip) */
static PyObject *
twin_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"python", "slot", "follow", "strip", NULL};
    PyObject *python, *slot, *follow, *strip;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO!OO:TwinCall", names, &python, &PyMemberDescr_Type, &slot, &follow,
                                     &strip)) {
        return NULL;
    }
    if (((PyMemberDescrObject *)slot)->d_member->type != T_OBJECT_EX) {
        PyErr_SetString(PyExc_TypeError, "the slot holds no object");
        return NULL;
    }
    TwinCall *self = (TwinCall *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->vectorcall = twin_vectorcall;
        self->python = Py_NewRef(python);
        self->slot = Py_NewRef(slot);
        self->follow = Py_NewRef(follow);
        self->strip = Py_NewRef(strip);
    }
    return (PyObject *)self;
}

static int
twin_traverse(PyObject *object, visitproc visit, void *arg)
{
    TwinCall *self = (TwinCall *)object;
    Py_VISIT(self->python);
    Py_VISIT(self->slot);
    Py_VISIT(self->follow);
    Py_VISIT(self->strip);
    return 0;
}

static int
twin_clear(PyObject *object)
{
    TwinCall *self = (TwinCall *)object;
    Py_CLEAR(self->python);
    Py_CLEAR(self->slot);
    Py_CLEAR(self->follow);
    Py_CLEAR(self->strip);
    return 0;
}

static void
twin_dealloc(PyObject *object)
{
    PyObject_GC_UnTrack(object);
    twin_clear(object);
    Py_TYPE(object)->tp_free(object);
}

static PyObject *
twin_get(PyObject *self, PyObject *owner, PyObject *Py_UNUSED(type))
{
    return owner == NULL || owner == Py_None ? Py_NewRef(self) : PyMethod_New(self, owner);
}

/* Name, documentation and the like are the function's. */
static PyObject *
twin_getattro(PyObject *object, PyObject *name)
{
    PyObject *found = PyObject_GenericGetAttr(object, name);
    if (found == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        found = PyObject_GetAttr(((TwinCall *)object)->python, name);
    }
    return found;
}

static PyMemberDef twin_members[] = {
    {"__wrapped__", T_OBJECT, offsetof(TwinCall, python), READONLY, "The same as a function."},
    {NULL, 0, 0, 0, NULL},
};

static PyObject *
twin_doc(PyObject *object, void *Py_UNUSED(closure))
{
    return PyObject_GetAttrString(((TwinCall *)object)->python, "__doc__");
}

static PyGetSetDef twin_getset[] = {
    {"__doc__", twin_doc, NULL, "The function's documentation.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject mp_TwinCallType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "magpy_runtime._native.TwinCall",
    .tp_basicsize = sizeof(TwinCall),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
    .tp_doc = "TwinCall(python, slot, follow, strip)\n--\n\nThe call of compiled modules.",
    .tp_new = twin_new,
    .tp_dealloc = twin_dealloc,
    .tp_traverse = twin_traverse,
    .tp_clear = twin_clear,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(TwinCall, vectorcall),
    .tp_descr_get = twin_get,
    .tp_getattro = twin_getattro,
    .tp_members = twin_members,
    .tp_getset = twin_getset,
};

static int
slots_traverse(PyObject *object, visitproc visit, void *arg)
{
    TwinSlots *self = (TwinSlots *)object;
    Py_VISIT(self->module);
    Py_VISIT(self->base);
    Py_VISIT(self->call);
    return 0;
}

static int
slots_clear(PyObject *object)
{
    TwinSlots *self = (TwinSlots *)object;
    Py_CLEAR(self->module);
    Py_CLEAR(self->base);
    Py_CLEAR(self->call);
    return 0;
}

static void
slots_dealloc(PyObject *object)
{
    PyObject_GC_UnTrack(object);
    slots_clear(object);
    Py_TYPE(object)->tp_free(object);
}

static PyObject *
slots_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs))
{
    return type->tp_alloc(type, 0);
}

static PyMemberDef slots_members[] = {
    {"module", T_OBJECT_EX, offsetof(TwinSlots, module), 0, "The original."},
    {"base", T_OBJECT_EX, offsetof(TwinSlots, base), 0, "Its class when it was last looked at."},
    {"call", T_OBJECT_EX, offsetof(TwinSlots, call), 0, "What serves calls."},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject mp_TwinSlotsType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "magpy_runtime._native.TwinSlots",
    .tp_basicsize = sizeof(TwinSlots),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .tp_doc = "The part of a compiled module's state that its call reads.",
    .tp_new = slots_new,
    .tp_dealloc = slots_dealloc,
    .tp_traverse = slots_traverse,
    .tp_clear = slots_clear,
    .tp_members = slots_members,
};
