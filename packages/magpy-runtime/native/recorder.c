/* The Python type Recorder. */
#include "capture.h"

#include <structmember.h>

/* Recorder(plan_for, on_enter, on_exit, on_stop, on_error); the callables are borrowed and kept. */
static PyObject *
recorder_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"plan_for", "on_enter", "on_exit", "on_stop", "on_error", NULL};
    PyObject *plan_for, *on_enter = Py_None, *on_exit = Py_None, *on_stop = Py_None, *on_error = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OOOO:Recorder", names, &plan_for, &on_enter, &on_exit,
                                     &on_stop, &on_error)) {
        return NULL;
    }
    Recorder *self = (Recorder *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->plan_for = Py_NewRef(plan_for);
    self->on_enter = on_enter == Py_None ? NULL : Py_NewRef(on_enter);
    self->on_exit = on_exit == Py_None ? NULL : Py_NewRef(on_exit);
    self->on_stop = on_stop == Py_None ? NULL : Py_NewRef(on_stop);
    self->on_error = on_error == Py_None ? NULL : Py_NewRef(on_error);
    self->next = -1;
    return (PyObject *)self;
}

static int
recorder_traverse(PyObject *object, visitproc visit, void *arg)
{
    Recorder *self = (Recorder *)object;
    Py_VISIT(self->plan_for);
    Py_VISIT(self->on_enter);
    Py_VISIT(self->on_exit);
    Py_VISIT(self->on_stop);
    Py_VISIT(self->on_error);
    Py_VISIT(self->diverted);
    Py_VISIT(self->doom);
    Py_VISIT(self->error);
    for (Py_ssize_t i = 0; i < self->depth; i++) {
        Py_VISIT(self->stack[i].state);
    }
#if !MP_USES_MONITORING
    Py_VISIT(self->delegating);
#endif
    return mp_plans_traverse(&self->plans, visit, arg);
}

/* Only reached when nothing runs: `run` holds a reference. */
static int
recorder_clear(PyObject *object)
{
    Recorder *self = (Recorder *)object;
    Py_CLEAR(self->plan_for);
    Py_CLEAR(self->on_enter);
    Py_CLEAR(self->on_exit);
    Py_CLEAR(self->on_stop);
    Py_CLEAR(self->on_error);
    Py_CLEAR(self->doom);
    Py_CLEAR(self->error);
    mp_drop_stack(self);
    mp_plans_clear(&self->plans);
#if !MP_USES_MONITORING
    Py_CLEAR(self->delegating);
#endif
    return 0;
}

static void
recorder_dealloc(PyObject *object)
{
    PyObject_GC_UnTrack(object);
    recorder_clear(object);
    PyMem_Free(((Recorder *)object)->stack);
    Py_TYPE(object)->tp_free(object);
}

/* Ends a run after the program's last instruction, with its exception put aside by the caller. */
static void
finish(Recorder *self)
{
    if (self->status != RECORDER_RUNNING) {
        return;
    }
    if (self->doom != NULL) {
        PyErr_SetObject((PyObject *)Py_TYPE(self->doom), self->doom);
        mp_fail(self);
    }
    else if (!mp_hooks_alive(self)) {
        PyErr_SetString(PyExc_RuntimeError, "the program replaced the trace function during the capture");
        mp_fail(self);
    }
    else if (self->depth != 0 || self->paused != 0) {
        PyErr_SetString(PyExc_RuntimeError, "the capture was paused when a monitored frame was left");
        mp_fail(self);
    }
    else {
        mp_halt(self);
        self->status = RECORDER_DONE;
    }
}

/* run(func, args=(), kwargs=None): borrows all three; the result is the program's own. */
static PyObject *
recorder_run(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"func", "args", "kwargs", NULL};
    Recorder *self = (Recorder *)object;
    PyObject *function, *arguments = mp_empty, *keywords = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O!O:run", names, &function, &PyTuple_Type, &arguments,
                                     &keywords)) {
        return NULL;
    }
    if (keywords != Py_None && !PyDict_Check(keywords)) {
        PyErr_SetString(PyExc_TypeError, "run() argument 'kwargs' must be a dict or None");
        return NULL;
    }
    if (self->status != RECORDER_NEW) {
        PyErr_SetString(PyExc_RuntimeError, "a Recorder runs once");
        return NULL;
    }
    if (mp_stacks_prepare() < 0) {
        return NULL;
    }
    if (mp_current != NULL) {
        PyErr_SetString(PyExc_RuntimeError, "another Recorder is running on this thread");
        return NULL;
    }
    Py_INCREF(self);
    self->tstate = PyThreadState_Get();
    self->status = RECORDER_RUNNING;
    mp_current = self;
    if (mp_hooks_install(self) < 0) {
        self->status = RECORDER_DONE;
        mp_current = NULL;
        Py_DECREF(self);
        return NULL;
    }
    PyObject *result = PyObject_Call(function, arguments, keywords == Py_None ? NULL : keywords);
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    finish(self);
    PyErr_Restore(type, value, traceback);
    Py_DECREF(self);
    return result;
}

/* Refuses a call from another thread than the run's. Returns -1 with an exception set. */
int
mp_check_thread(Recorder *self)
{
    if (self->status == RECORDER_RUNNING && self->tstate != PyThreadState_Get()) {
        PyErr_SetString(PyExc_RuntimeError, "this Recorder runs on another thread");
        return -1;
    }
    return 0;
}

static PyObject *
recorder_stop(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Recorder *self = (Recorder *)object;
    if (mp_check_thread(self) < 0) {
        return NULL;
    }
    mp_halt(self);
    Py_RETURN_NONE;
}

/* fail(error): borrows and keeps an exception that ends the capture at the next event (the first one wins). */
static PyObject *
recorder_fail(PyObject *object, PyObject *error)
{
    Recorder *self = (Recorder *)object;
    if (mp_check_thread(self) < 0) {
        return NULL;
    }
    if (!PyExceptionInstance_Check(error)) {
        PyErr_SetString(PyExc_TypeError, "fail() argument must be an exception");
        return NULL;
    }
    if (self->doom == NULL && self->status == RECORDER_RUNNING) {
        self->doom = Py_NewRef(error);
    }
    Py_RETURN_NONE;
}

static PyObject *
recorder_pause(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Recorder *self = (Recorder *)object;
    if (mp_check_thread(self) < 0) {
        return NULL;
    }
    if (self->paused++ == 0 && self->status == RECORDER_RUNNING) {
        mp_hooks_pause(self);
    }
    Py_RETURN_NONE;
}

static PyObject *
recorder_unpause(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Recorder *self = (Recorder *)object;
    if (mp_check_thread(self) < 0) {
        return NULL;
    }
    if (self->paused == 0) {
        PyErr_SetString(PyExc_RuntimeError, "unpause() without pause()");
        return NULL;
    }
    if (--self->paused == 0 && self->status == RECORDER_RUNNING) {
        mp_hooks_unpause(self);
    }
    Py_RETURN_NONE;
}

/* Whether an activation's frame is one of those that the thread is running now. */
static bool
is_running(Recorder *self, const Activation *activation)
{
    Frame *frame = mp_current_frame(self->tstate);
    while (frame != NULL && (frame != activation->frame || mp_frame_code(frame) != activation->plan->code)) {
        frame = frame->previous;
    }
    return frame != NULL;
}

/* The innermost activation, with `running` only when its frame certainly runs. NULL with an exception set. */
static Activation *
innermost(Recorder *self, bool running)
{
    if (mp_check_thread(self) < 0) {
        return NULL;
    }
    Activation *activation = self->depth > 0 ? &self->stack[self->depth - 1] : NULL;
    if (activation == NULL || (running && !is_running(self, activation))) {
        PyErr_SetString(PyExc_RuntimeError, "no monitored frame is running");
        return NULL;
    }
    return activation;
}

static PyObject *
recorder_code(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Activation *activation = innermost((Recorder *)object, false);
    return activation == NULL ? NULL : Py_NewRef(activation->plan->code);
}

static PyObject *
recorder_offset(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Activation *activation = innermost((Recorder *)object, false);
    return activation == NULL ? NULL : PyLong_FromLong(activation->index);
}

static PyObject *
recorder_line(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Activation *activation = innermost((Recorder *)object, false);
    if (activation == NULL) {
        return NULL;
    }
    return PyLong_FromLong(PyCode_Addr2Line(activation->plan->code, 2 * activation->index));
}

static PyObject *
recorder_local(PyObject *object, PyObject *number)
{
    Activation *activation = innermost((Recorder *)object, true);
    if (activation == NULL) {
        return NULL;
    }
    Py_ssize_t index = PyLong_AsSsize_t(number);
    if (index == -1 && PyErr_Occurred()) {
        return NULL;
    }
    if (index < 0 || index >= activation->plan->code->co_nlocalsplus) {
        PyErr_SetString(PyExc_IndexError, "local variable index out of range");
        return NULL;
    }
    PyObject *value = activation->frame->localsplus[index];
    return Py_NewRef(value != NULL ? value : mp_null);
}

static PyObject *
recorder_globals(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Activation *activation = innermost((Recorder *)object, true);
    return activation == NULL ? NULL : Py_NewRef(activation->frame->f_globals);
}

static PyObject *
recorder_builtins(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Activation *activation = innermost((Recorder *)object, true);
    return activation == NULL ? NULL : Py_NewRef(activation->frame->f_builtins);
}

static PyObject *
recorder_function(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Activation *activation = innermost((Recorder *)object, true);
    if (activation == NULL) {
        return NULL;
    }
    PyObject *function = mp_frame_function(activation->frame);
    return Py_NewRef(function != NULL ? function : Py_None);
}

static PyObject *
recorder_depth(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    return PyLong_FromSsize_t(((Recorder *)object)->depth);
}

static PyObject *
recorder_pending(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Recorder *self = (Recorder *)object;
    PyObject *result = PyTuple_New(self->depth);
    for (Py_ssize_t i = 0; result != NULL && i < self->depth; i++) {
        PyObject *pair = Py_BuildValue("Oi", self->stack[i].plan->code, self->stack[i].index);
        if (pair == NULL) {
            Py_CLEAR(result);
            break;
        }
        PyTuple_SET_ITEM(result, i, pair);
    }
    return result;
}

/* poke(position, value): puts another object on the value stack, `position` below its top. */
static PyObject *
recorder_poke(PyObject *object, PyObject *args)
{
    Recorder *self = (Recorder *)object;
    Py_ssize_t position;
    PyObject *value;
    if (!PyArg_ParseTuple(args, "nO:poke", &position, &value)) {
        return NULL;
    }
    Activation *activation = innermost(self, true);
    if (activation == NULL) {
        return NULL;
    }
    PyObject **base = activation->frame->localsplus + activation->plan->code->co_nlocalsplus;
    if (self->top == NULL || position < 0 || position >= self->top - base || self->top[-1 - position] == NULL) {
        PyErr_SetString(PyExc_IndexError, "no such stack value, or no instruction is being reported");
        return NULL;
    }
    PyObject *old = self->top[-1 - position];
    self->top[-1 - position] = Py_NewRef(value);
    Py_DECREF(old);
    Py_RETURN_NONE;
}

static PyObject *
recorder_counts(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Recorder *self = (Recorder *)object;
    return Py_BuildValue("{sKsKsK}", "events", self->events, "reported", self->reported, "entered", self->entered);
}

static PyObject *
recorder_get_active(PyObject *object, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(((Recorder *)object)->status == RECORDER_RUNNING);
}

static PyObject *
recorder_get_collects(PyObject *object, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(((Recorder *)object)->collects);
}

static int
recorder_set_collects(PyObject *object, PyObject *value, void *Py_UNUSED(closure))
{
    int truth = value == NULL ? 0 : PyObject_IsTrue(value);
    if (truth < 0) {
        return -1;
    }
    ((Recorder *)object)->collects = truth;
    return 0;
}

static PyObject *
recorder_get_error(PyObject *object, void *Py_UNUSED(closure))
{
    Recorder *self = (Recorder *)object;
    return Py_NewRef(self->error != NULL ? self->error : Py_None);
}

static PyMethodDef recorder_methods[] = {
    {"run", (PyCFunction)(void (*)(void))recorder_run, METH_VARARGS | METH_KEYWORDS,
     "run(func, args=(), kwargs=None)\n--\n\nCapture from here until func returns or raises, and give its result."},
    {"stop", recorder_stop, METH_NOARGS, "stop()\n--\n\nEnd the capture; the program goes on natively."},
    {"fail", recorder_fail, METH_O, "fail(error)\n--\n\nEnd the capture at the next event, with this error."},
    {"pause", recorder_pause, METH_NOARGS, "pause()\n--\n\nNo events until the matching unpause()."},
    {"unpause", recorder_unpause, METH_NOARGS, "unpause()\n--\n\nUndo one pause()."},
    {"code", recorder_code, METH_NOARGS, "code()\n--\n\nThe innermost monitored frame's code object."},
    {"offset", recorder_offset, METH_NOARGS, "offset()\n--\n\nThe current instruction's index in code units."},
    {"line", recorder_line, METH_NOARGS, "line()\n--\n\nThe current instruction's line, -1 when it has none."},
    {"local", recorder_local, METH_O, "local(index)\n--\n\nA local variable: the cell itself for cells, or NULL."},
    {"globals", recorder_globals, METH_NOARGS, "globals()\n--\n\nThe current frame's globals."},
    {"builtins", recorder_builtins, METH_NOARGS, "builtins()\n--\n\nThe current frame's builtins."},
    {"function", recorder_function, METH_NOARGS, "function()\n--\n\nThe function object that the frame runs, or None."},
    {"depth", recorder_depth, METH_NOARGS, "depth()\n--\n\nHow many monitored frames are running."},
    {"pending", recorder_pending, METH_NOARGS, "pending()\n--\n\n(code, index) of each monitored frame, outermost first."},
    {"frames", mp_recorder_frames, METH_NOARGS,
     "frames()\n--\n\n(function, code, index, locals, stack) of each monitored frame, outermost first."},
    {"replace", mp_recorder_replace, METH_VARARGS,
     "replace(others, frames, inputs)\n--\n\nPut others in the place of objects in the monitored frames."},
    {"divert", mp_recorder_divert, METH_VARARGS,
     "divert(after, n_out)\n--\n\nTake the current instruction as a whole: monitor nothing below it, then call after."},
    {"forget", mp_recorder_forget, METH_NOARGS,
     "forget()\n--\n\nCall nothing when the pending instructions of the outer frames finish."},
    {"position", mp_recorder_position, METH_NOARGS,
     "position()\n--\n\n(code, index) where the innermost frame goes on, inside an `after`."},
    {"inputs", mp_recorder_inputs, METH_NOARGS,
     "inputs()\n--\n\nWhat the innermost frame's current instruction takes from the stack, deepest first."},
    {"upcoming", mp_recorder_upcoming, METH_O,
     "upcoming(kept)\n--\n\n(index, stack values above the kept deepest) where the innermost frame goes on, inside an `after`."},
    {"phase", mp_recorder_phase, METH_NOARGS,
     "phase()\n--\n\n0: before an instruction, 1: after it, 2: a frame was entered, 3: it is left."},
    {"poke", recorder_poke, METH_VARARGS, "poke(position, value)\n--\n\nReplace a stack value, 0 being the top."},
    {"counts", recorder_counts, METH_NOARGS, "counts()\n--\n\nEvents seen, events reported, frames entered."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef recorder_getset[] = {
    {"active", recorder_get_active, NULL, "Whether the capture runs and was not stopped.", NULL},
    {"collects", recorder_get_collects, recorder_set_collects,
     "Inside a callback: whether garbage is collected again after it.", NULL},
    {"error", recorder_get_error, NULL, "The first exception of a callback, or None.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject mp_RecorderType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "magpy_runtime._native.Recorder",
    .tp_basicsize = sizeof(Recorder),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "Recorder(plan_for, on_enter=None, on_exit=None, on_stop=None, on_error=None)\n--\n\nCaptures one run of a program.",
    .tp_new = recorder_new,
    .tp_dealloc = recorder_dealloc,
    .tp_traverse = recorder_traverse,
    .tp_clear = recorder_clear,
    .tp_methods = recorder_methods,
    .tp_getset = recorder_getset,
};
