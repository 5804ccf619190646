/* The Python type NativeGuard: steps and results are read from tuples and checked, so that running them need not look again. */
#include "dispatch.h"

#include <structmember.h>

/* Whether a register holds something. */
static bool
holds(uint64_t bound, Py_ssize_t number)
{
    return number < MAX_REGISTERS && (bound >> number & 1) != 0;
}

/* All registers up to a number. */
static uint64_t
registers_below(Py_ssize_t count)
{
    return count >= MAX_REGISTERS ? UINT64_MAX : ((uint64_t)1 << count) - 1;
}

int
mp_operand_parse(PyObject *entry, uint64_t bound, Operand *operand)
{
    PyObject *object;
    if (!PyTuple_Check(entry) || !PyArg_ParseTuple(entry, "nO:operand", &operand->number, &object)) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "an operand is a tuple");
        }
        return -1;
    }
    if (operand->number < -1 || (operand->number >= 0 && !holds(bound, operand->number))) {
        PyErr_Format(PyExc_ValueError, "register %zd holds nothing yet", operand->number);
        return -1;
    }
    operand->object = operand->number < 0 ? Py_NewRef(object) : NULL;
    return 0;
}

/* Fills `*operands` as far as it comes, so that what is there can be cleared; one alone goes into `single`. */
int
mp_operands_parse(PyObject *list, uint64_t bound, Operand *single, Operand **operands, Py_ssize_t *count)
{
    if (!PyTuple_Check(list)) {
        PyErr_SetString(PyExc_TypeError, "operands are a tuple");
        return -1;
    }
    Py_ssize_t size = PyTuple_GET_SIZE(list);
    *count = 0;
    if (size == 1 && single != NULL) {
        *operands = single;
    }
    else if ((*operands = PyMem_Calloc((size_t)size + 1, sizeof(Operand))) == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < size; i++) {
        if (mp_operand_parse(PyTuple_GET_ITEM(list, i), bound, &(*operands)[i]) < 0) {
            return -1;
        }
        *count = i + 1;
    }
    return 0;
}

void
mp_operands_clear(Operand *operands, const Operand *single, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_XDECREF(operands[i].object);
    }
    if (operands != single) {
        PyMem_Free(operands);
    }
}

/* The table of a frozenset of ids, shared by steps whose sets are the same. NULL with an exception set. */
static const Outside *
outside_of(NativeGuard *self, PyObject *ids)
{
    for (const Outside *each = self->outsides; each != NULL; each = each->next) {
        int same = each->ids == ids ? 1 : PyObject_RichCompareBool(each->ids, ids, Py_EQ);
        if (same != 0) {
            return same < 0 ? NULL : each;
        }
    }
    size_t size = 8;
    while (size < 2 * (size_t)PySet_GET_SIZE(ids)) {
        size *= 2;
    }
    Outside *made = PyMem_Calloc(1, sizeof(Outside) + size * sizeof(void *));
    PyObject *iterator = made != NULL ? PyObject_GetIter(ids) : PyErr_NoMemory(), *number;
    if (iterator == NULL) {
        PyMem_Free(made);
        return NULL;
    }
    made->mask = size - 1;
    while ((number = PyIter_Next(iterator)) != NULL) {
        void *id = PyLong_Check(number) ? PyLong_AsVoidPtr(number) : NULL;
        Py_DECREF(number);
        if (id == NULL) {
            if (!PyErr_Occurred()) {
                PyErr_SetString(PyExc_ValueError, "no id of an object");
            }
            break;
        }
        size_t at = (uintptr_t)id >> 4;
        while (made->slots[at & made->mask] != NULL) {
            at++;
        }
        made->slots[at & made->mask] = id;
    }
    Py_DECREF(iterator);
    if (PyErr_Occurred()) {
        PyMem_Free(made);
        return NULL;
    }
    made->ids = ids;
    made->next = self->outsides;
    return self->outsides = made;
}

/* Whether an object is of a type with this name, from C code. */
static bool
is_named(PyObject *object, const char *name)
{
    return object != NULL && strcmp(Py_TYPE(object)->tp_name, name) == 0;
}

/* What native code knows of a question that is a function: the globals of a function, or something about an iterator. */
static int
resolve_other(Step *step)
{
    if (is_named(step->key, "operator.attrgetter")) {
        PyObject *reduced = PyObject_CallMethod(step->key, "__reduce__", NULL);
        if (reduced == NULL) {
            return -1;
        }
        PyObject *names = PyTuple_Check(reduced) && PyTuple_GET_SIZE(reduced) == 2 ? PyTuple_GET_ITEM(reduced, 1) : NULL;
        bool fits = names != NULL && PyTuple_Check(names) && PyTuple_GET_SIZE(names) == 1 &&
                    PyUnicode_Check(PyTuple_GET_ITEM(names, 0)) &&
                    PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "__globals__") == 0;
        step->question = fits ? ASK_GLOBALS : step->question;
        Py_DECREF(reduced);
    }
    else if (is_named(step->key, "functools.partial")) {
        PyObject *function = PyObject_GetAttrString(step->key, "func");
        PyObject *args = function != NULL ? PyObject_GetAttrString(step->key, "args") : NULL;
        if (args != NULL && PyCFunction_Check(function) &&
            PyCFunction_GET_FUNCTION(function) == (PyCFunction)(void (*)(void))mp_drawn && PyTuple_Check(args) &&
            PyTuple_GET_SIZE(args) == 3) {
            step->question = ASK_DRAWN;
            Py_SETREF(step->key, Py_NewRef(args));
        }
        Py_XDECREF(function);
        Py_XDECREF(args);
        return args != NULL ? 0 : -1;
    }
    return 0;
}

/* What a step needs beside its operands; `bound`: which registers hold something, `positional`, `keywords`: of the call,
 * -1 while unknown. */
typedef struct {
    uint64_t bound;
    Py_ssize_t positional, keywords;
} Known;

static bool
more_fits(const Step *step, Known *known)
{
    if (!PyCallable_Check(step->key) || !PyTuple_Check(step->expected) || step->count > MAX_REGISTERS) {
        return false;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(step->expected); i++) {
        Py_ssize_t number = PyLong_AsSsize_t(PyTuple_GET_ITEM(step->expected, i));
        if (number < 0 || number >= MAX_REGISTERS) {
            return false;
        }
        known->bound |= (uint64_t)1 << number;
    }
    return true;
}

static bool
step_fits(const Step *step, Known *known)
{
    switch (step->kind) {
    case STEP_POSITIONAL:
        known->positional = step->index;
        return step->index >= 0;
    case STEP_KEYWORDS:
        known->keywords = PyTuple_Check(step->expected) ? PyTuple_GET_SIZE(step->expected) : MAX_KEYWORDS + 1;
        return known->keywords <= MAX_KEYWORDS;
    case STEP_MODES:
    case STEP_HELD:
    case STEP_DIFFERENT:
    case STEP_TENSORS:
        return true;
    case STEP_OUTSIDE:
        return step->count == 1 && PyFrozenSet_Check(step->expected);
    case STEP_TRUE:
        return PyCallable_Check(step->key);
    case STEP_REST:
        if (step->index < 0 || step->index > MAX_REGISTERS || !PyCallable_Check(step->key)) {
            return false;
        }
        known->bound |= registers_below(step->index);
        return true;
    case STEP_COMPARE:
        return step->count == 2 && step->question >= Py_LT && step->question <= Py_GE;
    case STEP_MORE:
        return more_fits(step, known);
    case STEP_SAME:
        if (step->number < 0 || PyLong_AsSsize_t(step->expected) < 0 || !holds(known->bound, step->index)) {
            return false;
        }
        break;
    case STEP_BIND:
        if (PyLong_AsSsize_t(step->expected) < 0 || step->index >= MAX_REGISTERS || holds(known->bound, step->index)) {
            return false;
        }
        known->bound |= (uint64_t)1 << step->index;
        break;
    case STEP_IS:
    case STEP_PLAIN:
        break;
    default:
        return false;
    }
    bool registers = step->kind == STEP_SAME || step->kind == STEP_BIND;
    switch (step->question) {
    case ASK_ARGUMENT:
        return step->argument >= 0 && step->argument < known->positional;
    case ASK_KEYWORD:
        return step->argument >= 0 && step->argument < known->keywords;
    case ASK_CALL:
        return PyTuple_Check(step->key) && PyTuple_GET_SIZE(step->key) == 2 && PyTuple_Check(PyTuple_GET_ITEM(step->key, 1));
    case ASK_LENGTH:
    case ASK_TRUTH:
        return (step->kind == STEP_IS || (step->kind == STEP_BIND && step->question == ASK_LENGTH)) && step->count == 1;
    default:
        return step->question >= 0 && step->question < ASK_KINDS && step->count == 1 &&
               (!registers || step->index >= 0) && (step->question != ASK_ELEMENT || step->argument >= 0);
    }
}

static int
number_of(PyObject *object, Py_ssize_t *number)
{
    if (PyLong_CheckExact(object)) {
        *number = PyLong_AsSsize_t(object);
        if (*number == -1 && PyErr_Occurred()) {
            return -1;
        }
    }
    return 0;
}

/* Whether each held tensor's first word is the address that torch says it has (`_cdata`); other objects have none. */
static bool
points_to_tensors(const Step *step)
{
    bool all = true;
    for (Py_ssize_t i = 0; all && i < step->count; i++) {
        PyObject *object = step->operands[i].object;
        if (step->operands[i].number >= 0) {
            continue;
        }
        PyObject *address = PyObject_GetAttrString(object, "_cdata");
        all = address != NULL && PyLong_Check(address) && Py_TYPE(object)->tp_basicsize >= (Py_ssize_t)sizeof(PyObject) + 8 &&
              PyLong_AsVoidPtr(address) == *(void **)(object + 1);
        Py_XDECREF(address);
        PyErr_Clear();
    }
    return all;
}

static int
step_parse(NativeGuard *self, PyObject *entry, Step *step, Known *known)
{
    PyObject *operands, *key, *expected;
    if (!PyTuple_Check(entry) ||
        !PyArg_ParseTuple(entry, "iniOOO:step", &step->kind, &step->number, &step->question, &operands, &key, &expected)) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "a step is a tuple");
        }
        return -1;
    }
    step->key = Py_NewRef(key);
    if (PyUnicode_CheckExact(key)) {
        PyUnicode_InternInPlace(&step->key);
    }
    step->expected = Py_NewRef(expected);
    step->index = step->argument = -1;
    bool length = step->question == ASK_LENGTH || step->question == ASK_TRUTH;
    bool numbered = step->kind == STEP_POSITIONAL || step->kind == STEP_SAME || step->kind == STEP_BIND ||
                    step->kind == STEP_REST || length;
    if (mp_operands_parse(operands, known->bound, &step->single, &step->operands, &step->count) < 0 ||
        (numbered && !PyBool_Check(expected) && number_of(expected, &step->index) < 0) ||
        (step->question != ASK_ITEM && number_of(key, &step->argument) < 0)) {
        return -1;
    }
    if (PyBool_Check(expected)) {
        step->index = expected == Py_True;
    }
    if (!step_fits(step, known)) {
        PyErr_Clear();
        PyErr_Format(PyExc_ValueError, "a step of kind %d cannot ask question %d", step->kind, step->question);
        return -1;
    }
    bool asks = step->kind == STEP_IS || step->kind == STEP_PLAIN || step->kind == STEP_SAME || step->kind == STEP_BIND;
    if (asks && step->question == ASK_OTHER && resolve_other(step) < 0) {
        return -1;
    }
    if (step->kind == STEP_OUTSIDE && (step->outside = outside_of(self, step->expected)) == NULL) {
        return -1;
    }
    if (step->kind == STEP_TENSORS) {
        for (Py_ssize_t i = 0; i < step->count; i++) {
            step->index = step->operands[i].number >= 0 ? i : step->index;
        }
        step->points = points_to_tensors(step);
    }
    return 0;
}

/* NativeGuard(steps, modes, held, tensors, same_value, strict, direct, handed): `direct` is None or (inputs, outputs,
 * result, actions), `handed` how many of the registers are handed on, from the first; -1: all. */
static PyObject *
guard_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"steps", "modes", "held", "tensors", "same_value", "strict", "direct", "handed", NULL};
    PyObject *steps, *modes, *held, *tensors, *same_value, *strict = Py_None, *direct = Py_None;
    Py_ssize_t handed = -1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!OOO|OOn:NativeGuard", names, &PyList_Type, &steps, &PyTuple_Type,
                                     &modes, &held, &tensors, &same_value, &strict, &direct, &handed)) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(modes); i++) {
        PyObject *pair = PyTuple_GET_ITEM(modes, i);
        if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2) {
            PyErr_SetString(PyExc_TypeError, "a mode is a pair: a function and what it gives");
            return NULL;
        }
    }
    NativeGuard *self = (NativeGuard *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->modes = Py_NewRef(modes);
    self->held = Py_NewRef(held);
    self->tensors = Py_NewRef(tensors);
    self->same_value = Py_NewRef(same_value);
    self->strict = strict != Py_None ? Py_NewRef(strict) : NULL;
    Py_ssize_t size = PyList_GET_SIZE(steps);
    self->steps = PyMem_Calloc((size_t)size + 1, sizeof(Step));
    if (self->steps == NULL) {
        PyErr_NoMemory();
        goto failed;
    }
    Known known = {.positional = -1, .keywords = -1};
    for (Py_ssize_t i = 0; i < size; i++) {
        self->count = i + 1;
        if (step_parse(self, PyList_GET_ITEM(steps, i), &self->steps[i], &known) < 0) {
            goto failed;
        }
        self->asks_modes |= self->steps[i].kind == STEP_MODES;
        if (self->steps[i].kind == STEP_REST && i + 1 < size) {
            PyErr_SetString(PyExc_ValueError, "nothing comes behind the rest");
            goto failed;
        }
    }
    while (self->registers < MAX_REGISTERS && known.bound >> self->registers != 0) {
        self->registers++;
    }
    self->handed = handed < 0 ? self->registers : handed;
    if (self->handed > self->registers || (registers_below(self->handed) & ~known.bound) != 0) {
        PyErr_SetString(PyExc_ValueError, "a register that is handed on holds nothing");
        goto failed;
    }
    if (direct != Py_None && mp_direct_parse(self, direct, known.bound) < 0) {
        goto failed;
    }
    return (PyObject *)self;
failed:
    Py_DECREF(self);
    return NULL;
}

static int
guard_traverse(PyObject *object, visitproc visit, void *arg)
{
    NativeGuard *self = (NativeGuard *)object;
    Py_VISIT(self->modes);
    Py_VISIT(self->held);
    Py_VISIT(self->tensors);
    Py_VISIT(self->same_value);
    Py_VISIT(self->strict);
    for (Py_ssize_t i = 0; i < self->count; i++) {
        const Step *step = &self->steps[i];
        Py_VISIT(step->key);
        Py_VISIT(step->expected);
        Py_VISIT(step->scratch);
        for (Py_ssize_t k = 0; k < step->count; k++) {
            Py_VISIT(step->operands[k].object);
        }
    }
    return mp_direct_traverse(self, visit, arg);
}

static int
guard_clear(PyObject *object)
{
    NativeGuard *self = (NativeGuard *)object;
    Step *steps = self->steps;
    Py_ssize_t count = self->count;
    self->steps = NULL;
    self->count = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_XDECREF(steps[i].key);
        Py_XDECREF(steps[i].expected);
        Py_XDECREF(steps[i].scratch);
        mp_operands_clear(steps[i].operands, &steps[i].single, steps[i].count);
    }
    PyMem_Free(steps);
    while (self->outsides != NULL) {
        Outside *next = self->outsides->next;
        PyMem_Free(self->outsides);
        self->outsides = next;
    }
    mp_direct_clear(self);
    Py_CLEAR(self->modes);
    Py_CLEAR(self->held);
    Py_CLEAR(self->tensors);
    Py_CLEAR(self->same_value);
    Py_CLEAR(self->strict);
    return 0;
}

static void
guard_dealloc(PyObject *object)
{
    PyObject_GC_UnTrack(object);
    guard_clear(object);
    Py_TYPE(object)->tp_free(object);
}

static PyObject *
guard_result(PyObject *object, PyObject *args, PyObject *kwargs, bool strictly)
{
    NativeGuard *self = (NativeGuard *)object;
    PyObject *given, *keywords, *registers[MAX_REGISTERS];
    if (kwargs != NULL || !PyArg_ParseTuple(args, "O!O!:NativeGuard", &PyTuple_Type, &given, &PyDict_Type, &keywords)) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "a guard takes no keywords");
        }
        return NULL;
    }
    Call call = {.args = ((PyTupleObject *)given)->ob_item, .count = PyTuple_GET_SIZE(given), .kwargs = keywords};
    Py_ssize_t failed = 0, count = self->registers;
    int held = mp_guard_call(self, &call, NULL, registers, &failed);
    PyObject *result = NULL;
    if (held >= 0 && (!strictly || self->strict == NULL || mp_guard_check(self, &call, registers, held, failed) == 0)) {
        result = held ? mp_guard_bound(self, registers) : PyLong_FromSsize_t(failed);
    }
    mp_drop(registers, count);
    return result;
}

/* native(args, kwargs): what the generated guard gives: a tuple of what is bound, or the number of the check that failed. */
static PyObject *
guard_tp_call(PyObject *object, PyObject *args, PyObject *kwargs)
{
    return guard_result(object, args, kwargs, true);
}

/* check(args, kwargs): the same, without strict mode. */
static PyObject *
guard_check(PyObject *object, PyObject *args)
{
    return guard_result(object, args, NULL, false);
}

/* by_mock() */
static PyObject *
guard_by_mock(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    ((NativeGuard *)object)->direct = false;
    Py_RETURN_NONE;
}

static PyMethodDef guard_methods[] = {
    {"check", guard_check, METH_VARARGS,
     "check(args, kwargs, /)\n--\n\nWhat is bound, or the number of the check that failed; not held against Python."},
    {"by_mock", guard_by_mock, METH_NOARGS,
     "by_mock()\n--\n\nCalls run the mock itself: native code would run a graph that fails once more, which does harm here."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef guard_members[] = {
    {"direct", T_BOOL, offsetof(NativeGuard, direct), READONLY, "Whether running the graph is all that the mock does."},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject mp_NativeGuardType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "magpy_runtime._native.NativeGuard",
    .tp_basicsize = sizeof(NativeGuard),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "NativeGuard(steps, modes, held, tensors, same_value, strict=None, direct=None)\n--\n\n"
              "A record's guard as steps.",
    .tp_new = guard_new,
    .tp_dealloc = guard_dealloc,
    .tp_traverse = guard_traverse,
    .tp_clear = guard_clear,
    .tp_call = guard_tp_call,
    .tp_members = guard_members,
    .tp_methods = guard_methods,
};
