/* The Python type NativeGuard: steps and results are read from tuples and checked, so that running them need not look again. */
#include "dispatch.h"

#include <structmember.h>

static int
operand_parse(PyObject *entry, Py_ssize_t bound, Operand *operand)
{
    PyObject *object;
    if (!PyTuple_Check(entry) || !PyArg_ParseTuple(entry, "nO:operand", &operand->number, &object)) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "an operand is a tuple");
        }
        return -1;
    }
    if (operand->number < -1 || operand->number >= bound) {
        PyErr_Format(PyExc_ValueError, "register %zd holds nothing yet", operand->number);
        return -1;
    }
    operand->object = operand->number < 0 ? Py_NewRef(object) : NULL;
    return 0;
}

/* Fills `*operands` as far as it comes, so that what is there can be cleared. */
static int
operands_parse(PyObject *list, Py_ssize_t bound, Operand **operands, Py_ssize_t *count)
{
    if (!PyTuple_Check(list)) {
        PyErr_SetString(PyExc_TypeError, "operands are a tuple");
        return -1;
    }
    Py_ssize_t size = PyTuple_GET_SIZE(list);
    *count = 0;
    *operands = PyMem_Calloc((size_t)size + 1, sizeof(Operand));
    if (*operands == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < size; i++) {
        if (operand_parse(PyTuple_GET_ITEM(list, i), bound, &(*operands)[i]) < 0) {
            return -1;
        }
        *count = i + 1;
    }
    return 0;
}

static void
operands_clear(Operand *operands, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_XDECREF(operands[i].object);
    }
    PyMem_Free(operands);
}

/* What a step needs beside its operands; `bound`: how many registers hold something, `positional`, `keywords`: of the
 * call, -1 while unknown. */
typedef struct {
    Py_ssize_t bound, positional, keywords;
} Known;

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
        if (step->index < known->bound || step->index > MAX_REGISTERS || !PyCallable_Check(step->key)) {
            return false;
        }
        known->bound = step->index;
        return true;
    case STEP_SAME:
        if (step->number < 0 || PyLong_AsSsize_t(step->expected) < 0 || PyLong_AsSsize_t(step->expected) >= known->bound) {
            return false;
        }
        break;
    case STEP_BIND:
        if (PyLong_AsSsize_t(step->expected) != known->bound || known->bound >= MAX_REGISTERS) {
            return false;
        }
        known->bound++;
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
        return step->kind == STEP_IS && step->count == 1;
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

static int
step_parse(PyObject *entry, Step *step, Known *known)
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
    if (operands_parse(operands, known->bound, &step->operands, &step->count) < 0 ||
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
    if (step->kind == STEP_TENSORS) {
        for (Py_ssize_t i = 0; i < step->count; i++) {
            step->index = step->operands[i].number >= 0 ? i : step->index;
        }
    }
    return 0;
}

static int
make_parse(PyObject *entry, Py_ssize_t bound, Py_ssize_t outputs, Make *self)
{
    PyObject *what, *keys = NULL;
    if (!PyTuple_Check(entry) || !PyArg_ParseTuple(entry, "iO|O:result", &self->kind, &what, &keys)) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "a result is a tuple");
        }
        return -1;
    }
    switch (self->kind) {
    case MAKE_OUTPUT:
        self->operand.number = PyLong_AsSsize_t(what);
        if (self->operand.number < 0 || self->operand.number >= outputs) {
            if (!PyErr_Occurred()) {
                PyErr_SetString(PyExc_ValueError, "there is no such output");
            }
            return -1;
        }
        return 0;
    case MAKE_OPERAND:
        return operand_parse(what, bound, &self->operand);
    case MAKE_TUPLE:
    case MAKE_LIST:
    case MAKE_DICT:
        break;
    default:
        PyErr_SetString(PyExc_ValueError, "unknown kind of result");
        return -1;
    }
    bool fits = PyTuple_Check(what) && (self->kind != MAKE_DICT || (keys != NULL && PyTuple_Check(keys) &&
                                                                    PyTuple_GET_SIZE(keys) == PyTuple_GET_SIZE(what)));
    if (!fits) {
        PyErr_SetString(PyExc_TypeError, "parts and keys are tuples of the same length");
        return -1;
    }
    self->keys = Py_XNewRef(keys);
    Py_ssize_t size = PyTuple_GET_SIZE(what);
    self->parts = PyMem_Calloc((size_t)size + 1, sizeof(Make));
    if (self->parts == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < size; i++) {
        self->count = i + 1;
        if (make_parse(PyTuple_GET_ITEM(what, i), bound, outputs, &self->parts[i]) < 0) {
            return -1;
        }
    }
    return 0;
}

static void
make_clear(Make *self)
{
    for (Py_ssize_t i = 0; i < self->count; i++) {
        make_clear(&self->parts[i]);
    }
    PyMem_Free(self->parts);
    Py_CLEAR(self->keys);
    Py_CLEAR(self->operand.object);
    self->parts = NULL;
    self->count = 0;
}

static int
make_traverse(const Make *self, visitproc visit, void *arg)
{
    Py_VISIT(self->keys);
    Py_VISIT(self->operand.object);
    for (Py_ssize_t i = 0; i < self->count; i++) {
        int stopped = make_traverse(&self->parts[i], visit, arg);
        if (stopped) {
            return stopped;
        }
    }
    return 0;
}

/* NativeGuard(steps, modes, held, tensors, same_value, strict, direct): `direct` is None or (inputs, outputs, result). */
static PyObject *
guard_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"steps", "modes", "held", "tensors", "same_value", "strict", "direct", NULL};
    PyObject *steps, *modes, *held, *tensors, *same_value, *strict = Py_None, *direct = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!OOO|OO:NativeGuard", names, &PyList_Type, &steps, &PyTuple_Type,
                                     &modes, &held, &tensors, &same_value, &strict, &direct)) {
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
        if (step_parse(PyList_GET_ITEM(steps, i), &self->steps[i], &known) < 0) {
            goto failed;
        }
        if (self->steps[i].kind == STEP_REST && i + 1 < size) {
            PyErr_SetString(PyExc_ValueError, "nothing comes behind the rest");
            goto failed;
        }
    }
    self->registers = known.bound;
    if (direct != Py_None) {
        PyObject *inputs, *result;
        if (!PyTuple_Check(direct) || !PyArg_ParseTuple(direct, "OnO:direct", &inputs, &self->output_count, &result)) {
            goto failed;
        }
        if (operands_parse(inputs, known.bound, &self->inputs, &self->input_count) < 0 ||
            make_parse(result, known.bound, self->output_count, &self->result) < 0) {
            goto failed;
        }
        self->direct = true;
    }
    return (PyObject *)self;
failed:
    if (!PyErr_Occurred()) {
        PyErr_SetString(PyExc_TypeError, "`direct` is a tuple of inputs, number of outputs and result");
    }
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
    for (Py_ssize_t i = 0; i < self->input_count; i++) {
        Py_VISIT(self->inputs[i].object);
    }
    return make_traverse(&self->result, visit, arg);
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
        operands_clear(steps[i].operands, steps[i].count);
    }
    PyMem_Free(steps);
    self->direct = false;
    operands_clear(self->inputs, self->input_count);
    self->inputs = NULL;
    self->input_count = 0;
    make_clear(&self->result);
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
    int held = mp_guard_call(self, &call, registers, &failed);
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

static PyMethodDef guard_methods[] = {
    {"check", guard_check, METH_VARARGS,
     "check(args, kwargs, /)\n--\n\nWhat is bound, or the number of the check that failed; not held against Python."},
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
