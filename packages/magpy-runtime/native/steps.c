/* A record's guard as steps, and, where the mock does nothing else, the call of its graph.
 *
 * The generated Python says the same (`magpy.explain`) and is the truth; strict mode runs both and wants them to agree.
 * Objects that a step binds are in registers, which the caller owns; what the record holds by identity is in the steps. */
#include "dispatch.h"

#include <structmember.h>

/* What a step does. The order is that of magpy_codegen's StepKind. */
typedef enum {
    STEP_POSITIONAL,
    STEP_KEYWORDS,
    STEP_MODES,
    STEP_HELD,
    STEP_IS,
    STEP_PLAIN,
    STEP_SAME,
    STEP_BIND,
    STEP_DIFFERENT,
    STEP_OUTSIDE,
    STEP_TENSORS,
    STEP_TRUE,
    STEP_KINDS
} StepKind;

/* Questions about the call; those below are asked of objects. */
#define ASK_ARGUMENT 16
#define ASK_KEYWORD 17
#define ASK_CALL 18
#define ASK_NOTHING (-1)

struct Step {
    int kind;
    int question;
    Py_ssize_t number;      /* what a failure is called */
    Py_ssize_t index;       /* a register's number, or an expected length; STEP_TENSORS: the last register's place */
    Py_ssize_t argument;    /* an argument's or an element's number */
    Operand *operands;
    Py_ssize_t count;
    PyObject *key;          /* owned or NULL */
    PyObject *expected;     /* owned or NULL */
    PyObject *scratch;      /* owned or NULL; STEP_TENSORS: the arguments, registers' places empty (None) */
};

/* -- running the steps ------------------------------------------------------------------------------------------------ */

/* The call's arguments as the tuple that Python wants. */
PyObject *
mp_call_args(const Call *call)
{
    PyObject *tuple = PyTuple_New(call->count);
    for (Py_ssize_t i = 0; tuple != NULL && i < call->count; i++) {
        PyTuple_SET_ITEM(tuple, i, Py_NewRef(call->args[i]));
    }
    return tuple;
}

PyObject *
mp_call_kwargs(const Call *call)
{
    if (call->kwargs != NULL) {
        return Py_NewRef(call->kwargs);
    }
    PyObject *dict = PyDict_New();
    Py_ssize_t count = call->names != NULL ? PyTuple_GET_SIZE(call->names) : 0;
    for (Py_ssize_t i = 0; dict != NULL && i < count; i++) {
        if (PyDict_SetItem(dict, PyTuple_GET_ITEM(call->names, i), call->args[call->count + i]) < 0) {
            Py_CLEAR(dict);
        }
    }
    return dict;
}

/* Two names: keywords are strings, nearly always interned ones. */
static inline bool
same_name(PyObject *one, PyObject *other)
{
    return one == other || (PyUnicode_CheckExact(one) && PyUnicode_CheckExact(other) && PyUnicode_Compare(one, other) == 0);
}

static bool
keywords_fit(Call *call, PyObject *wanted)
{
    Py_ssize_t count = PyTuple_GET_SIZE(wanted);
    if (call->kwargs != NULL) {
        if (PyDict_GET_SIZE(call->kwargs) != count) {
            return false;
        }
        PyObject *key, *value;
        Py_ssize_t at = 0, i = 0;
        while (PyDict_Next(call->kwargs, &at, &key, &value)) {
            if (!same_name(key, PyTuple_GET_ITEM(wanted, i))) {
                return false;
            }
            call->keywords[i++] = value;
        }
        return true;
    }
    if (count != (call->names != NULL ? PyTuple_GET_SIZE(call->names) : 0)) {
        return false;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!same_name(PyTuple_GET_ITEM(call->names, i), PyTuple_GET_ITEM(wanted, i))) {
            return false;
        }
        call->keywords[i] = call->args[call->count + i];
    }
    return true;
}

static inline PyObject *
operand_get(const Operand *operand, PyObject *const *registers)
{
    return operand->number < 0 ? operand->object : registers[operand->number];
}

static int
modes_fit(const NativeGuard *self)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(self->modes); i++) {
        PyObject *pair = PyTuple_GET_ITEM(self->modes, i);
        PyObject *found = PyObject_CallNoArgs(PyTuple_GET_ITEM(pair, 0));
        if (found == NULL) {
            return -1;
        }
        bool same = found == PyTuple_GET_ITEM(pair, 1);
        Py_DECREF(found);
        if (!same) {
            return 0;
        }
    }
    return 1;
}

/* The facts about held objects: 1, or 0 and the number of the failure, or -1. */
static int
held_fit(const NativeGuard *self, Py_ssize_t *failed)
{
    if (Py_IS_TYPE(self->held, &mp_FactTableType)) {
        int held = mp_table_check((FactTable *)self->held, failed);
        *failed = -1 - *failed;
        return held;
    }
    PyObject *found = PyObject_CallNoArgs(self->held);
    if (found == NULL) {
        return -1;
    }
    int held = found == Py_None;
    *failed = held ? 0 : -1 - PyLong_AsSsize_t(found);
    Py_DECREF(found);
    return PyErr_Occurred() ? -1 : held;
}

/* Whether tensors are as they were. The tuple of arguments is kept from call to call: a model has many parameters. */
static int
tensors_fit(const NativeGuard *self, Step *step, PyObject *const *registers)
{
    PyObject *args = step->scratch;
    step->scratch = NULL;   /* another thread or an inner call makes a tuple of its own */
    if (args == NULL) {
        args = PyTuple_New(step->count);
        if (args == NULL) {
            return -1;
        }
        for (Py_ssize_t i = 0; i < step->count; i++) {
            PyTuple_SET_ITEM(args, i, Py_NewRef(step->operands[i].number < 0 ? step->operands[i].object : Py_None));
        }
    }
    for (Py_ssize_t i = 0; i < step->count && i <= step->index; i++) {
        if (step->operands[i].number >= 0) {
            PyObject *empty = PyTuple_GET_ITEM(args, i);
            PyTuple_SET_ITEM(args, i, Py_NewRef(registers[step->operands[i].number]));
            Py_DECREF(empty);
        }
    }
    PyObject *found = PyObject_Call(self->tensors, args, NULL);
    int result = found == NULL ? -1 : found == Py_True;
    Py_XDECREF(found);
    if (Py_REFCNT(args) != 1 || step->scratch != NULL) {
        Py_DECREF(args);
        return result;
    }
    for (Py_ssize_t i = 0; i < step->count && i <= step->index; i++) {
        if (step->operands[i].number >= 0) {
            PyObject *given = PyTuple_GET_ITEM(args, i);
            PyTuple_SET_ITEM(args, i, Py_NewRef(Py_None));
            Py_DECREF(given);
        }
    }
    step->scratch = args;
    return result;
}

/* The answer to a step's question: borrowed, or kept alive by `*owned`; NULL with or without an exception. */
static PyObject *
ask(const Step *step, const Call *call, PyObject *const *registers, PyObject **owned)
{
    switch (step->question) {
    case ASK_ARGUMENT:
        return call->args[step->argument];
    case ASK_KEYWORD:
        return call->keywords[step->argument];
    case ASK_CALL:
        return *owned = PyObject_Call(PyTuple_GET_ITEM(step->key, 0), PyTuple_GET_ITEM(step->key, 1), NULL);
    default: {
        PyObject *object = operand_get(&step->operands[0], registers);
        if (!mp_fits(step->question, object, step->key)) {
            return NULL;
        }
        return mp_answer(step->question, object, step->key, step->argument, owned);
    }
    }
}

/* Whether a step holds: 1, 0, or -1 with an exception set. */
static int
step_holds(const NativeGuard *self, Step *step, Call *call, PyObject **registers, Py_ssize_t *failed)
{
    switch (step->kind) {
    case STEP_POSITIONAL:
        return call->count == step->index;
    case STEP_KEYWORDS:
        return keywords_fit(call, step->expected);
    case STEP_MODES:
        return modes_fit(self);
    case STEP_HELD:
        return held_fit(self, failed);
    case STEP_TENSORS:
        return tensors_fit(self, step, registers);
    case STEP_DIFFERENT:
        for (Py_ssize_t i = 1; i < step->count; i++) {
            for (Py_ssize_t k = 0; k < i; k++) {
                if (operand_get(&step->operands[i], registers) == operand_get(&step->operands[k], registers)) {
                    return 0;
                }
            }
        }
        return 1;
    case STEP_OUTSIDE: {
        PyObject *number = PyLong_FromVoidPtr(operand_get(&step->operands[0], registers));
        int found = number != NULL ? PySet_Contains(step->expected, number) : -1;
        Py_XDECREF(number);
        return found < 0 ? -1 : !found;
    }
    case STEP_TRUE: {
        PyObject *args = PyTuple_New(step->count);
        for (Py_ssize_t i = 0; args != NULL && i < step->count; i++) {
            PyTuple_SET_ITEM(args, i, Py_NewRef(operand_get(&step->operands[i], registers)));
        }
        PyObject *found = args != NULL ? PyObject_Call(step->key, args, NULL) : NULL;
        Py_XDECREF(args);
        int result = found == NULL ? -1 : PyObject_IsTrue(found);
        Py_XDECREF(found);
        return result;
    }
    default:
        break;
    }
    if (step->question == ASK_LENGTH || step->question == ASK_TRUTH) {
        Py_ssize_t length = mp_builtin_length(operand_get(&step->operands[0], registers));
        if (length < 0) {
            return 0;
        }
        return step->question == ASK_LENGTH ? length == step->index : (length > 0) == (step->index != 0);
    }
    PyObject *owned = NULL;
    PyObject *found = ask(step, call, registers, &owned);
    if (found == NULL) {
        if (PyErr_Occurred()) {
            return -1;
        }
        found = mp_null;
    }
    int result = 1;
    switch (step->kind) {
    case STEP_IS:
        result = found == step->expected;
        break;
    case STEP_PLAIN:
        if (found != step->expected) {
            result = 0;
            if (Py_TYPE(found) == Py_TYPE(step->expected)) {
                Py_INCREF(found);
                result = mp_same_value(self->same_value, found, step->expected);
                Py_DECREF(found);
            }
        }
        break;
    case STEP_SAME:
        result = found == registers[step->index];
        break;
    case STEP_BIND:
        registers[step->index] = Py_NewRef(found);
        break;
    }
    Py_XDECREF(owned);
    return result;
}

/* Whether a call is one that the record serves: 1 and what is bound, 0 and the number of the check that failed, or -1.
 * Either way the caller owns what is in the registers. */
int
mp_guard_call(NativeGuard *self, Call *call, PyObject **registers, Py_ssize_t *failed)
{
    memset(registers, 0, (size_t)self->registers * sizeof(PyObject *));
    for (Py_ssize_t i = 0; i < self->count; i++) {
        Step *step = &self->steps[i];
        *failed = step->number;
        int held = step_holds(self, step, call, registers, failed);
        if (held <= 0) {
            return held;
        }
    }
    return 1;
}

PyObject *
mp_guard_bound(const NativeGuard *self, PyObject *const *registers)
{
    PyObject *tuple = PyTuple_New(self->registers);
    for (Py_ssize_t i = 0; tuple != NULL && i < self->registers; i++) {
        PyTuple_SET_ITEM(tuple, i, Py_NewRef(registers[i]));
    }
    return tuple;
}

/* In strict mode: hold the generated guard against what was found here. 0, or -1 with an exception set. */
int
mp_guard_check(NativeGuard *self, const Call *call, PyObject *const *registers, int held, Py_ssize_t failed)
{
    PyObject *args = mp_call_args(call), *kwargs = mp_call_kwargs(call);
    PyObject *found = held ? mp_guard_bound(self, registers) : PyLong_FromSsize_t(failed);
    PyObject *result = NULL;
    if (args != NULL && kwargs != NULL && found != NULL) {
        result = PyObject_CallFunctionObjArgs(self->strict, self, args, kwargs, found, NULL);
    }
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    Py_XDECREF(found);
    Py_XDECREF(result);
    return result != NULL ? 0 : -1;
}

/* -- running the graph ------------------------------------------------------------------------------------------------ */

static PyObject *
make(const Make *self, PyObject *const *outputs, PyObject *const *registers)
{
    PyObject *made;
    switch (self->kind) {
    case MAKE_OUTPUT:
        return Py_NewRef(outputs[self->operand.number]);
    case MAKE_OPERAND:
        return Py_NewRef(operand_get(&self->operand, registers));
    case MAKE_TUPLE:
        made = PyTuple_New(self->count);
        break;
    case MAKE_LIST:
        made = PyList_New(self->count);
        break;
    default:
        made = PyDict_New();
        break;
    }
    for (Py_ssize_t i = 0; made != NULL && i < self->count; i++) {
        PyObject *part = make(&self->parts[i], outputs, registers);
        if (part == NULL) {
            Py_CLEAR(made);
        }
        else if (self->kind == MAKE_TUPLE) {
            PyTuple_SET_ITEM(made, i, part);
        }
        else if (self->kind == MAKE_LIST) {
            PyList_SET_ITEM(made, i, part);
        }
        else {
            if (PyDict_SetItem(made, PyTuple_GET_ITEM(self->keys, i), part) < 0) {
                Py_CLEAR(made);
            }
            Py_DECREF(part);
        }
    }
    return made;
}

/* The result of a call whose guard has passed; NULL with or without an exception set. */
PyObject *
mp_guard_run(NativeGuard *self, PyObject *run, PyObject *const *registers)
{
    PyObject *small[24] = {NULL}, **args = small;
    if (self->input_count >= (Py_ssize_t)Py_ARRAY_LENGTH(small)) {
        args = PyMem_Malloc(((size_t)self->input_count + 1) * sizeof(PyObject *));
        if (args == NULL) {
            return PyErr_NoMemory();
        }
    }
    args[0] = NULL;
    for (Py_ssize_t i = 0; i < self->input_count; i++) {
        args[i + 1] = operand_get(&self->inputs[i], registers);
    }
    size_t count = (size_t)self->input_count | PY_VECTORCALL_ARGUMENTS_OFFSET;
    PyObject *outputs = PyObject_Vectorcall(run, args + 1, count, NULL);
    if (args != small) {
        PyMem_Free(args);
    }
    if (outputs == NULL) {
        return NULL;
    }
    PyObject *result = NULL;
    if ((PyTuple_CheckExact(outputs) || PyList_CheckExact(outputs)) &&
        PySequence_Fast_GET_SIZE(outputs) == self->output_count) {
        result = make(&self->result, PySequence_Fast_ITEMS(outputs), registers);
    }
    Py_DECREF(outputs);
    return result;
}


/* -- the Python type -------------------------------------------------------------------------------------------------- */

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
    bool numbered = step->kind == STEP_POSITIONAL || step->kind == STEP_SAME || step->kind == STEP_BIND || length;
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
