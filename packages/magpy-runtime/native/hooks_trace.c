/* Where events come from on CPython 3.11: a C trace function with opcode events.
 *
 * The trace function that the thread had before (a debugger's, a coverage tool's) keeps getting its own events,
 * and `sys.gettrace()` keeps answering with it: only the C function in the thread state is ours. */
#include "capture.h"

#if !MP_USES_MONITORING

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
        if (recorder->outer_trace != NULL) {
            Activation *activation = mp_activation_of(recorder, iframe);
            if ((activation == NULL || activation->had_opcodes) &&
                forward(recorder, object, frame, what, arg) < 0) {
                return -1;
            }
        }
        if (mp_current == recorder) {
            mp_instruction(recorder, iframe, _PyInterpreterFrame_LASTI(iframe));
        }
        return 0;
    }
    if (recorder->outer_trace != NULL && what != PyTrace_RETURN &&
        forward(recorder, object, frame, what, arg) < 0) {
        return -1;
    }
    if (what == PyTrace_CALL && mp_current == recorder) {
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
    activation->had_opcodes = frame->f_trace_opcodes;
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

/* Whether a frame's locals may be read: its frame object is held, so they always may. */
bool
mp_hooks_is_running(Recorder *recorder, Frame *frame)
{
    (void)recorder;
    (void)frame;
    return true;
}

#endif
