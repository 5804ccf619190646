/* What a recorder does at a boundary: read all frames' state, replace what is in it, watch one instruction as a whole,
 * begin anew. */
#include "capture.h"

/* What the frames() method says of one frame: (function, code, index, locals, stack). Of one that has raised the stack is
 * empty. NULL with an exception set. */
static PyObject *
frame_state(const Activation *activation, bool unwound)
{
    Frame *frame = activation->frame;
    PyCodeObject *code = activation->plan->code;
    const CodeTables *tables = mp_code_tables(code);
    if (tables == NULL) {
        return NULL;
    }
    int index = activation->index, nlocals = code->co_nlocalsplus;
    int kept = index >= 0 && index < tables->length ? tables->kept[index] : -1;
    if (kept < 0) {
        PyErr_Format(PyExc_ValueError, "the stack of %R is not known at code unit %d", code, index);
        return NULL;
    }
    if (unwound) {
        kept = 0;
    }
    PyObject *locals = PyTuple_New(nlocals), *stack = PyTuple_New(kept);
    PyObject *result = NULL;
    if (locals != NULL && stack != NULL) {
        for (int i = 0; i < nlocals; i++) {
            PyObject *value = frame->localsplus[i];
            PyTuple_SET_ITEM(locals, i, Py_NewRef(value != NULL ? value : mp_null));
        }
        for (int i = 0; i < kept; i++) {
            PyObject *value = frame->localsplus[nlocals + i];
            PyTuple_SET_ITEM(stack, i, Py_NewRef(value != NULL ? value : mp_null));
        }
        PyObject *function = mp_frame_function(frame);
        result = Py_BuildValue("OOiOO", function != NULL ? function : Py_None, code, (int)tables->indices[index],
                               locals, stack);
    }
    Py_XDECREF(locals);
    Py_XDECREF(stack);
    return result;
}

/* Whether all monitored frames are among those that the thread runs now. Returns -1 with an exception set. */
static int
check_running(Recorder *self)
{
    Frame *frame = self->depth > 0 ? mp_current_frame(self->tstate) : NULL;
    for (Py_ssize_t i = self->depth - 1; i >= 0; i--) {
        const Activation *activation = &self->stack[i];
        while (frame != NULL && frame != activation->frame) {
            frame = frame->previous;
        }
        if (frame == NULL || mp_frame_code(frame) != activation->plan->code) {
            PyErr_SetString(PyExc_RuntimeError, "a monitored frame is not running");
            return -1;
        }
    }
    return 0;
}

/* frames(): the state of every monitored frame, outermost first. */
PyObject *
mp_recorder_frames(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Recorder *self = (Recorder *)object;
    if (mp_check_thread(self) < 0) {
        return NULL;
    }
    if (check_running(self) < 0) {
        return NULL;
    }
    PyObject *result = PyTuple_New(self->depth);
    for (Py_ssize_t i = 0; result != NULL && i < PyTuple_GET_SIZE(result); i++) {
        PyObject *state = frame_state(&self->stack[i], self->unwound && i == self->depth - 1);
        if (state == NULL) {
            Py_CLEAR(result);
            break;
        }
        PyTuple_SET_ITEM(result, i, state);
    }
    return result;
}

/* Puts others in the place of the objects in `count` slots. `others` says by which: {id(object): (object, other)}.
 * Returns -1 with an exception set. */
static int
replace_slots(PyObject **slots, int count, PyObject *others)
{
    for (int i = 0; i < count; i++) {
        PyObject *value = slots[i];
        if (value == NULL || !(PyLong_CheckExact(value) || PyFloat_CheckExact(value) || PyUnicode_CheckExact(value))) {
            continue;
        }
        PyObject *identity = PyLong_FromVoidPtr(value);
        PyObject *pair = identity == NULL ? NULL : PyDict_GetItemWithError(others, identity);
        Py_XDECREF(identity);
        if (pair == NULL) {
            if (PyErr_Occurred()) {
                return -1;
            }
            continue;
        }
        if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2) {
            PyErr_SetString(PyExc_TypeError, "replace() wants pairs");
            return -1;
        }
        slots[i] = Py_NewRef(PyTuple_GET_ITEM(pair, 1));
        Py_DECREF(value);
    }
    return 0;
}

/* replace(others, frames, inputs): puts other objects in the place of some: with `frames` in the variables of all
 * monitored frames, and in their stacks below what their current instructions take; with `inputs` on the innermost frame's
 * stack above that. `others` (borrowed) is {id(object): (object, other)}; it holds the objects, since C code may still use
 * what was in a slot. */
PyObject *
mp_recorder_replace(PyObject *object, PyObject *args)
{
    Recorder *self = (Recorder *)object;
    PyObject *others;
    int frames, inputs;
    if (!PyArg_ParseTuple(args, "O!pp:replace", &PyDict_Type, &others, &frames, &inputs) || mp_check_thread(self) < 0 ||
        check_running(self) < 0) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < self->depth; i++) {
        const Activation *activation = &self->stack[i];
        const CodeTables *tables = mp_code_tables(activation->plan->code);
        if (tables == NULL) {
            return NULL;
        }
        bool innermost = i == self->depth - 1;
        int index = activation->index, nlocals = activation->plan->code->co_nlocalsplus;
        PyObject **slots = activation->frame->localsplus;
        int kept = index >= 0 && index < tables->length ? tables->kept[index] : 0;
        int all = innermost && self->next >= 0 ? tables->depths[self->next] :
                  kept >= 0 && index >= 0 && index < tables->length ? tables->depths[tables->indices[index]] : 0;
        if (kept < 0 || (innermost && self->unwound)) {
            kept = all = 0;
        }
        if (innermost && self->next >= 0 && kept > all) {
            kept = all;     /* an exception has unwound the stack */
        }
        if (frames && replace_slots(slots, nlocals + kept, others) < 0) {
            return NULL;
        }
        if (inputs && innermost && all > kept && replace_slots(slots + nlocals + kept, all - kept, others) < 0) {
            return NULL;
        }
    }
    Py_RETURN_NONE;
}

/* divert(after, n_out): `after` (kept) is called when the innermost frame's current instruction has finished, in
 * place of what was due; until then no frame below it is monitored. */
PyObject *
mp_recorder_divert(PyObject *object, PyObject *args)
{
    Recorder *self = (Recorder *)object;
    PyObject *after;
    int n_out;
    if (!PyArg_ParseTuple(args, "Oi:divert", &after, &n_out) || mp_check_thread(self) < 0) {
        return NULL;
    }
    if (!PyCallable_Check(after)) {
        PyErr_SetString(PyExc_TypeError, "divert() argument 'after' must be callable");
        return NULL;
    }
    if (n_out < 0) {
        PyErr_SetString(PyExc_ValueError, "divert() argument 'n_out' must not be negative");
        return NULL;
    }
    if (self->status != RECORDER_RUNNING || self->depth == 0) {
        PyErr_SetString(PyExc_RuntimeError, "no monitored frame is running");
        return NULL;
    }
    Activation *activation = &self->stack[self->depth - 1];
    PyObject *state = activation->state, *diverted = self->diverted;
    activation->pending = NULL;
    activation->state = NULL;
    self->diverted = Py_NewRef(after);
    self->diverted_out = n_out;
    Py_XDECREF(state);
    Py_XDECREF(diverted);
    Py_RETURN_NONE;
}

/* forget(): nothing is called when the pending instructions of the outer frames finish. */
PyObject *
mp_recorder_forget(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Recorder *self = (Recorder *)object;
    if (mp_check_thread(self) < 0) {
        return NULL;
    }
    PyObject *states = PyList_New(0);
    for (Py_ssize_t i = 0; states != NULL && i + 1 < self->depth; i++) {
        Activation *activation = &self->stack[i];
        activation->pending = NULL;
        if (activation->state != NULL) {
            int status = PyList_Append(states, activation->state);
            Py_CLEAR(activation->state);
            if (status < 0) {
                Py_CLEAR(states);
            }
        }
    }
    if (states == NULL) {
        return NULL;
    }
    Py_DECREF(states);
    Py_RETURN_NONE;
}

/* position(): (code, where it goes on) inside an `after`, else (code, index) of the current instruction. */
PyObject *
mp_recorder_position(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Recorder *self = (Recorder *)object;
    if (mp_check_thread(self) < 0) {
        return NULL;
    }
    if (self->depth == 0) {
        PyErr_SetString(PyExc_RuntimeError, "no monitored frame is running");
        return NULL;
    }
    const Activation *activation = &self->stack[self->depth - 1];
    return Py_BuildValue("Oi", activation->plan->code, self->next >= 0 ? self->next : activation->index);
}

/* `count` stack values of the innermost frame from `first` on, counted from the bottom. */
static PyObject *
values_from(const Activation *activation, int first, int count)
{
    PyObject **base = activation->frame->localsplus + activation->plan->code->co_nlocalsplus + first;
    PyObject *values = PyTuple_New(count);
    for (int i = 0; values != NULL && i < count; i++) {
        PyTuple_SET_ITEM(values, i, Py_NewRef(base[i] != NULL ? base[i] : mp_null));
    }
    return values;
}

/* inputs(): what the innermost frame's current instruction takes from the stack, deepest first. */
PyObject *
mp_recorder_inputs(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Recorder *self = (Recorder *)object;
    if (mp_check_thread(self) < 0) {
        return NULL;
    }
    if (self->depth == 0) {
        PyErr_SetString(PyExc_RuntimeError, "no monitored frame is running");
        return NULL;
    }
    const Activation *activation = &self->stack[self->depth - 1];
    const CodeTables *tables = mp_code_tables(activation->plan->code);
    if (tables == NULL) {
        return NULL;
    }
    int index = tables->indices[activation->index];
    int kept = tables->kept[index];
    return values_from(activation, kept, kept < 0 ? 0 : tables->depths[index] - kept);
}

/* upcoming(kept): inside an `after`, (where the innermost frame goes on, its stack values above the `kept` deepest). */
PyObject *
mp_recorder_upcoming(PyObject *object, PyObject *argument)
{
    Recorder *self = (Recorder *)object;
    int kept = (int)PyLong_AsLong(argument);
    if ((kept < 0 && PyErr_Occurred()) || mp_check_thread(self) < 0) {
        return NULL;
    }
    if (self->depth == 0 || self->next < 0) {
        PyErr_SetString(PyExc_RuntimeError, "no instruction has just finished");
        return NULL;
    }
    const Activation *activation = &self->stack[self->depth - 1];
    const CodeTables *tables = mp_code_tables(activation->plan->code);
    if (tables == NULL) {
        return NULL;
    }
    int count = tables->depths[self->next] - kept;
    if (kept < 0 || count < 0) {
        PyErr_SetString(PyExc_ValueError, "the stack is not that deep");
        return NULL;
    }
    return Py_BuildValue("iN", self->next, values_from(activation, kept, count));
}

/* phase(): what the current callback is about, see `Phase` in magpy_runtime.capture. */
PyObject *
mp_recorder_phase(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    return PyLong_FromLong(((Recorder *)object)->phase);
}
