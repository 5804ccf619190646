/* A record's guard as steps, and, where the mock does nothing else, the call of its graph.
 *
 * The generated Python says the same (`magpy.explain`) and is the truth; strict mode runs both and wants them to agree.
 * Objects that a step binds are in registers, which the caller owns; what the record holds by identity is in the steps. */
#include "dispatch.h"

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

/* The rest of a guard, in Python: it gives all that is bound, or the number of the check that failed. */
static int
rest_holds(const Step *step, const Call *call, PyObject **registers, Py_ssize_t *failed)
{
    Py_ssize_t front = step->question == 1 ? 2 : 0;
    PyObject *args = PyTuple_New(front + step->count);
    if (args == NULL) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < step->count; i++) {
        PyTuple_SET_ITEM(args, front + i, Py_NewRef(operand_get(&step->operands[i], registers)));
    }
    if (front > 0) {
        PyObject *positional = mp_call_args(call), *keywords = positional != NULL ? mp_call_kwargs(call) : NULL;
        PyTuple_SET_ITEM(args, 0, positional);
        PyTuple_SET_ITEM(args, 1, keywords);
        if (keywords == NULL) {
            Py_DECREF(args);
            return -1;
        }
    }
    PyObject *found = PyObject_Call(step->key, args, NULL);
    Py_DECREF(args);
    if (found == NULL) {
        return -1;
    }
    int result = -1;
    if (PyLong_Check(found)) {
        *failed = PyLong_AsSsize_t(found);
        result = *failed == -1 && PyErr_Occurred() ? -1 : 0;
    }
    else if (!PyTuple_Check(found) || PyTuple_GET_SIZE(found) != step->index) {
        PyErr_SetString(PyExc_TypeError, "a guard gives a tuple or a number");
    }
    else {
        for (Py_ssize_t i = 0; i < step->index; i++) {
            Py_XSETREF(registers[i], Py_NewRef(PyTuple_GET_ITEM(found, i)));
        }
        result = 1;
    }
    Py_DECREF(found);
    return result;
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
    case STEP_REST:
        return rest_holds(step, call, registers, failed);
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
