/* The direct form of a mock: the graph is run, functions are called for their effects, and what is handed on is made of
 * outputs, objects that the guard has bound, and constants. It is read from tuples and checked, and run, here. */
#include "dispatch.h"

/* -- reading ---------------------------------------------------------------------------------------------------------- */

static int
make_parse(PyObject *entry, uint64_t bound, Py_ssize_t outputs, Make *self)
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
        return mp_operand_parse(what, bound, &self->operand);
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

/* Fills the actions as far as it comes. */
static int
actions_parse(NativeGuard *self, PyObject *list, uint64_t bound)
{
    if (!PyTuple_Check(list)) {
        PyErr_SetString(PyExc_TypeError, "actions are a tuple");
        return -1;
    }
    Py_ssize_t size = PyTuple_GET_SIZE(list);
    self->actions = PyMem_Calloc((size_t)size + 1, sizeof(Action));
    if (self->actions == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < size; i++) {
        PyObject *entry = PyTuple_GET_ITEM(list, i), *function, *args;
        if (!PyTuple_Check(entry) || !PyArg_ParseTuple(entry, "OO!:action", &function, &PyTuple_Type, &args) ||
            PyTuple_GET_SIZE(args) > MAX_ARGUMENTS) {
            if (!PyErr_Occurred()) {
                PyErr_SetString(PyExc_ValueError, "an action is a function, and a tuple of few arguments");
            }
            return -1;
        }
        Action *action = &self->actions[i];
        action->args = PyMem_Calloc((size_t)PyTuple_GET_SIZE(args) + 1, sizeof(Make));
        if (action->args == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        action->function = Py_NewRef(function);
        self->action_count = i + 1;
        for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(args); k++) {
            action->count = k + 1;
            if (make_parse(PyTuple_GET_ITEM(args, k), bound, self->output_count, &action->args[k]) < 0) {
                return -1;
            }
        }
    }
    return 0;
}

static void
actions_clear(NativeGuard *self)
{
    for (Py_ssize_t i = 0; i < self->action_count; i++) {
        for (Py_ssize_t k = 0; k < self->actions[i].count; k++) {
            make_clear(&self->actions[i].args[k]);
        }
        PyMem_Free(self->actions[i].args);
        Py_CLEAR(self->actions[i].function);
    }
    PyMem_Free(self->actions);
    self->actions = NULL;
    self->action_count = 0;
}

/* Reads (inputs, outputs, result[, actions]): 0, or -1 with an exception set. */
int
mp_direct_parse(NativeGuard *self, PyObject *direct, uint64_t bound)
{
    PyObject *inputs, *result, *actions = mp_empty;
    if (!PyTuple_Check(direct)) {
        PyErr_SetString(PyExc_TypeError, "`direct` is a tuple of inputs, number of outputs, result and actions");
        return -1;
    }
    if (!PyArg_ParseTuple(direct, "OnO|O:direct", &inputs, &self->output_count, &result, &actions) ||
        mp_operands_parse(inputs, bound, NULL, &self->inputs, &self->input_count) < 0 ||
        make_parse(result, bound, self->output_count, &self->result) < 0 || actions_parse(self, actions, bound) < 0) {
        return -1;
    }
    self->direct = true;
    return 0;
}

void
mp_direct_clear(NativeGuard *self)
{
    self->direct = false;
    mp_operands_clear(self->inputs, NULL, self->input_count);
    self->inputs = NULL;
    self->input_count = 0;
    actions_clear(self);
    make_clear(&self->result);
}

int
mp_direct_traverse(const NativeGuard *self, visitproc visit, void *arg)
{
    for (Py_ssize_t i = 0; i < self->input_count; i++) {
        Py_VISIT(self->inputs[i].object);
    }
    for (Py_ssize_t i = 0; i < self->action_count; i++) {
        Py_VISIT(self->actions[i].function);
        for (Py_ssize_t k = 0; k < self->actions[i].count; k++) {
            int stopped = make_traverse(&self->actions[i].args[k], visit, arg);
            if (stopped) {
                return stopped;
            }
        }
    }
    return make_traverse(&self->result, visit, arg);
}

/* -- running ---------------------------------------------------------------------------------------------------------- */

static PyObject *
make(const Make *self, PyObject *const *outputs, PyObject *const *registers)
{
    PyObject *made;
    switch (self->kind) {
    case MAKE_OUTPUT:
        return Py_NewRef(outputs[self->operand.number]);
    case MAKE_OPERAND:
        return Py_NewRef(mp_operand(&self->operand, registers));
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

/* Call the functions that the mock calls behind the graph: 0, or -1 with an exception set. */
static int
act(const NativeGuard *self, PyObject *const *outputs, PyObject *const *registers)
{
    for (Py_ssize_t i = 0; i < self->action_count; i++) {
        const Action *action = &self->actions[i];
        PyObject *args[MAX_ARGUMENTS + 1] = {NULL};
        Py_ssize_t count = 0;
        while (count < action->count && (args[count + 1] = make(&action->args[count], outputs, registers)) != NULL) {
            count++;
        }
        PyObject *done = NULL;
        if (count == action->count) {
            done = PyObject_Vectorcall(action->function, args + 1, (size_t)count | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
        }
        mp_drop(args + 1, count);
        if (done == NULL) {
            return -1;
        }
        Py_DECREF(done);
    }
    return 0;
}

/* The result of a call whose guard has passed; NULL with or without an exception set. `*begun`: something was changed. */
PyObject *
mp_guard_run(NativeGuard *self, PyObject *run, PyObject *const *registers, bool *begun)
{
    PyObject *outputs = NULL, *result = NULL;
    *begun = false;
    if (run != Py_None) {
        PyObject *small[24] = {NULL}, **args = small;
        if (self->input_count >= (Py_ssize_t)Py_ARRAY_LENGTH(small)) {
            args = PyMem_Malloc(((size_t)self->input_count + 1) * sizeof(PyObject *));
            if (args == NULL) {
                return PyErr_NoMemory();
            }
        }
        args[0] = NULL;
        for (Py_ssize_t i = 0; i < self->input_count; i++) {
            args[i + 1] = mp_operand(&self->inputs[i], registers);
        }
        size_t count = (size_t)self->input_count | PY_VECTORCALL_ARGUMENTS_OFFSET;
        outputs = PyObject_Vectorcall(run, args + 1, count, NULL);
        if (args != small) {
            PyMem_Free(args);
        }
        if (outputs == NULL) {
            return NULL;
        }
    }
    bool fits = self->output_count == 0 ||
                (outputs != NULL && (PyTuple_CheckExact(outputs) || PyList_CheckExact(outputs)) &&
                 PySequence_Fast_GET_SIZE(outputs) == self->output_count);
    if (fits) {
        PyObject *const *items = self->output_count > 0 ? PySequence_Fast_ITEMS(outputs) : NULL;
        *begun = self->action_count > 0;
        if (act(self, items, registers) == 0) {
            result = make(&self->result, items, registers);
        }
    }
    Py_XDECREF(outputs);
    return result;
}
