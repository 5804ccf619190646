/* Where events come from on CPython 3.11: a C trace function with opcode events.
 *
 * The trace function that the thread had before (a debugger's, a coverage tool's) keeps getting its own events,
 * and `sys.gettrace()` keeps answering with it: only the C function in the thread state is ours. */
#include "capture.h"

#if !MP_USES_MONITORING

/* Delegating generators. When an exception is thrown into a generator that is suspended in `yield from` (or
 * `await`), and the inner one catches it and returns, CPython 3.11 goes on in the outer one without a call event.
 * So the opcode events of such a generator stay on while it is suspended, and the first of them is its entry. The
 * generators are listed, to switch the events off in the end. */

/* Takes a generator's frame out of the list. Whether it was in it. */
static bool
forget_delegating(Recorder *recorder, Frame *frame)
{
    PyObject *list = recorder->delegating;
    if (list == NULL || frame->owner != FRAME_OWNED_BY_GENERATOR) {
        return false;
    }
    PyObject *generator = (PyObject *)_PyFrame_GetGenerator(frame);
    for (Py_ssize_t i = PyList_GET_SIZE(list) - 1; i >= 0; i--) {
        PyObject *listed = PyWeakref_GET_OBJECT(PyList_GET_ITEM(list, i));
        if (listed == generator || listed == Py_None) {
            PyList_SetSlice(list, i, i + 1, NULL);
        }
        if (listed == generator) {
            return true;
        }
    }
    return false;
}

/* Whether a frame that yields does so for a generator that it delegates to. */
static bool
is_delegating(Frame *frame)
{
    return frame->owner == FRAME_OWNED_BY_GENERATOR && _PyInterpreterFrame_LASTI(frame) > 0 &&
           _Py_OPCODE(frame->prev_instr[-1]) == SEND;
}

/* A monitored frame yields: lists its generator if it delegates. A failure ends the capture. */
void
mp_hooks_yield(Recorder *recorder, Activation *activation)
{
    Frame *frame = activation->frame;
    if (activation->had_opcodes || !is_delegating(frame)) {
        return;
    }
    PyObject *reference = PyWeakref_NewRef((PyObject *)_PyFrame_GetGenerator(frame), NULL);
    if (recorder->delegating == NULL) {
        recorder->delegating = PyList_New(0);
    }
    if (reference == NULL || recorder->delegating == NULL || PyList_Append(recorder->delegating, reference) < 0) {
        mp_fail(recorder);
    }
    else {
        activation->had_opcodes = true;
    }
    Py_XDECREF(reference);
}

/* Switches the opcode events of the listed generators off. */
static void
release_delegating(Recorder *recorder)
{
    PyObject *list = recorder->delegating;
    recorder->delegating = NULL;
    for (Py_ssize_t i = 0; list != NULL && i < PyList_GET_SIZE(list); i++) {
        PyGenObject *generator = (PyGenObject *)PyWeakref_GET_OBJECT(PyList_GET_ITEM(list, i));
        if ((PyObject *)generator != Py_None && generator->gi_frame_state < FRAME_COMPLETED) {
            PyFrameObject *frame = ((Frame *)generator->gi_iframe)->frame_obj;
            if (frame != NULL) {
                frame->f_trace_opcodes = 0;
            }
        }
    }
    Py_XDECREF(list);
}

/* Sets the thread's C trace function; its object stays as it is. Takes nothing. */
static void
set_trace(PyThreadState *tstate, Py_tracefunc function)
{
    tstate->c_tracefunc = function;
    if (tstate->tracing == 0) {
        tstate->cframe->use_tracing = function != NULL || tstate->c_profilefunc != NULL ? 255 : 0;
    }
}

/* What a frame's call event means: it starts (0), is resumed (1), or is resumed with an exception (2). Starting
 * and resuming run RESUME; throwing does not. */
static int
entry_kind(Frame *frame)
{
    _Py_CODEUNIT unit = *frame->prev_instr;
    if (_Py_OPCODE(unit) != RESUME && _Py_OPCODE(unit) != RESUME_QUICK) {
        return 2;
    }
    return (_Py_OPARG(unit) & 3) != 0 ? 1 : 0;
}

/* Hands an event to the trace function that was there before. Returns its verdict. */
static int
forward(Recorder *recorder, PyObject *object, PyFrameObject *frame, int what, PyObject *arg)
{
    int status = recorder->outer_trace(object, frame, what, arg);
    if (mp_current == recorder && recorder->depth > 0) {
        Activation *activation = &recorder->stack[recorder->depth - 1];
        if (activation->frame_object == frame && !frame->f_trace_opcodes) {
            activation->had_opcodes = false;
            frame->f_trace_opcodes = 1;
        }
    }
    return status;
}

/* An opcode event. Fails only where the outer trace function, if it asked for this event, fails. */
static int
trace_opcode(Recorder *recorder, PyObject *object, PyFrameObject *frame)
{
    Frame *iframe = frame->f_frame;
    int unit = _PyInterpreterFrame_LASTI(iframe);
    Activation *activation = mp_activation_of(recorder, iframe);
    if (activation == NULL && mp_current == recorder && recorder->diverted == NULL &&
        forget_delegating(recorder, iframe)) {
        frame->f_trace_opcodes = 0;
        mp_enter(recorder, iframe, unit, 1);
        activation = mp_current == recorder ? mp_activation_of(recorder, iframe) : NULL;
    }
    if (mp_current == recorder && recorder->outer_trace != NULL && (activation == NULL || activation->had_opcodes) &&
        forward(recorder, object, frame, PyTrace_OPCODE, Py_None) < 0) {
        return -1;
    }
    if (mp_current == recorder) {
        mp_instruction(recorder, iframe, unit);
    }
    return 0;
}

/* The trace function; everything is borrowed. Fails only where the outer trace function fails. */
static int
trace(PyObject *object, PyFrameObject *frame, int what, PyObject *arg)
{
    Recorder *recorder = mp_current;
    if (recorder == NULL) {
        return 0;
    }
    Frame *iframe = frame->f_frame;
    if (what == PyTrace_OPCODE) {
        return trace_opcode(recorder, object, frame);
    }
    if (recorder->outer_trace != NULL && what != PyTrace_RETURN &&
        forward(recorder, object, frame, what, arg) < 0) {
        return -1;
    }
    if (what == PyTrace_CALL && mp_current == recorder && !mp_is_adopted(recorder, iframe)) {
        int kind = entry_kind(iframe);
        int index = _PyInterpreterFrame_LASTI(iframe);
        mp_enter(recorder, iframe, index, kind);
        if (kind != 2 && mp_current == recorder && recorder->depth > 0 &&
            recorder->stack[recorder->depth - 1].frame == iframe) {
            mp_instruction(recorder, iframe, index);
        }
    }
    else if (what == PyTrace_RETURN) {
        int kind = arg == NULL ? 2 : _Py_OPCODE(*iframe->prev_instr) == YIELD_VALUE ? 1 : 0;
        Py_tracefunc outer = recorder->outer_trace;
        mp_leave(recorder, iframe, arg != NULL ? arg : mp_null, kind);
        if (outer != NULL) {
            return outer(object, frame, what, arg);
        }
    }
    return 0;
}

/* Starts the events of this thread. Returns -1 with an exception set. */
int
mp_hooks_install(Recorder *recorder)
{
    PyThreadState *tstate = PyThreadState_Get();
    if (tstate->tracing != 0) {
        PyErr_SetString(PyExc_RuntimeError, "a trace or profile function cannot start a capture");
        return -1;
    }
    recorder->outer_trace = tstate->c_tracefunc;
    set_trace(tstate, trace);
    return 0;
}

/* Whether the events still come; the program may have set a trace function of its own. */
bool
mp_hooks_alive(Recorder *recorder)
{
    return PyThreadState_Get()->c_tracefunc == (recorder->paused ? NULL : trace);
}

/* Ends the events of this thread and puts the earlier trace function back, unless the program set another. */
void
mp_hooks_remove(Recorder *recorder)
{
    if (mp_hooks_alive(recorder)) {
        set_trace(PyThreadState_Get(), recorder->outer_trace);
    }
    recorder->outer_trace = NULL;
    release_delegating(recorder);
}

/* No events until mp_hooks_unpause. */
void
mp_hooks_pause(Recorder *recorder)
{
    (void)recorder;
    PyThreadState *tstate = PyThreadState_Get();
    if (tstate->c_tracefunc == trace) {
        set_trace(tstate, NULL);
    }
}

/* Events again. */
void
mp_hooks_unpause(Recorder *recorder)
{
    (void)recorder;
    PyThreadState *tstate = PyThreadState_Get();
    if (tstate->c_tracefunc == NULL) {
        set_trace(tstate, trace);
    }
}

/* Nothing to prepare for a code object. */
int
mp_hooks_new_plan(Recorder *recorder, Plan *plan)
{
    (void)recorder;
    (void)plan;
    return 0;
}

/* Switches opcode events on in a frame that is entered; the activation owns the frame object from now on. */
int
mp_hooks_enter(Recorder *recorder, Activation *activation)
{
    PyFrameObject *frame = activation->frame->frame_obj;
    activation->frame_object = (PyFrameObject *)Py_NewRef(frame);
    activation->hid_lines = recorder->outer_trace == NULL && frame->f_trace_lines;
    activation->had_opcodes = frame->f_trace_opcodes && !forget_delegating(recorder, activation->frame);
    frame->f_trace_opcodes = 1;
    if (activation->hid_lines) {
        frame->f_trace_lines = 0;
    }
    return 0;
}

/* Gives the frame its own switches back and drops the frame object. */
void
mp_hooks_leave(Recorder *recorder, Activation *activation)
{
    (void)recorder;
    PyFrameObject *frame = activation->frame_object;
    activation->frame_object = NULL;
    if (activation->hid_lines) {
        frame->f_trace_lines = 1;
    }
    frame->f_trace_opcodes = activation->had_opcodes;
    Py_DECREF(frame);
}

#endif
