/* What happens when a frame is entered, runs an instruction, or is left.
 *
 * Entering, leaving and instructions arrive here from the hooks. None of these functions leaves an exception
 * set that was not set before, and none loses one that was. */
#include "capture.h"

MP_THREAD_LOCAL Recorder *mp_current = NULL;

/* The exception that is being raised while an event is handled: an unwinding frame's, or a thrown one. */
typedef struct {
    PyObject *type, *value, *traceback;     /* owned */
} SavedError;

/* Takes the pending exception, if any, out of the thread state; give it back with restore_error. */
static inline SavedError
save_error(void)
{
    SavedError saved = {NULL, NULL, NULL};
    if (PyErr_Occurred()) {
        PyErr_Fetch(&saved.type, &saved.value, &saved.traceback);
    }
    return saved;
}

/* Puts a saved exception back (its references are taken). */
static inline void
restore_error(SavedError saved)
{
    if (saved.type != NULL) {
        PyErr_Restore(saved.type, saved.value, saved.traceback);
    }
}

/* Forgets all activations without calling anything back. */
void
mp_drop_stack(Recorder *recorder)
{
    while (recorder->depth > 0) {
        Activation *activation = &recorder->stack[--recorder->depth];
        PyObject *state = activation->state;
        activation->state = NULL;
        activation->pending = NULL;
        mp_hooks_leave(recorder, activation);
        Py_XDECREF(state);
    }
    Py_CLEAR(recorder->diverted);
}

/* Ends the capture for good; the program goes on natively. Safe to call twice. */
void
mp_halt(Recorder *recorder)
{
    if (recorder->status != RECORDER_RUNNING) {
        return;
    }
    SavedError saved = save_error();
    recorder->status = RECORDER_STOPPED;
    mp_hooks_remove(recorder);
    mp_current = NULL;
    mp_drop_stack(recorder);
    restore_error(saved);
}

/* Keeps the pending exception as the recorder's error (the first one wins) and ends the capture. Ctrl-C is the
 * program's, wherever it strikes: it is raised again there. */
void
mp_fail(Recorder *recorder)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (value != NULL && traceback != NULL) {
        PyException_SetTraceback(value, traceback);
    }
    if (type != NULL && PyErr_GivenExceptionMatches(type, PyExc_KeyboardInterrupt)) {
        PyErr_SetInterrupt();
    }
    if (recorder->error == NULL) {
        recorder->error = value;
        value = NULL;
    }
    mp_halt(recorder);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    if (recorder->on_stop != NULL) {
        PyObject *on_stop = recorder->on_stop;
        recorder->on_stop = NULL;
        PyObject *result = PyObject_CallNoArgs(on_stop);
        if (result == NULL) {
            PyErr_Clear();
        }
        Py_XDECREF(result);
        Py_DECREF(on_stop);
    }
}

/* Ends the capture with the exception that `fail` was given. */
static void
meet_doom(Recorder *recorder)
{
    SavedError saved = save_error();
    PyErr_SetObject((PyObject *)Py_TYPE(recorder->doom), recorder->doom);
    Py_CLEAR(recorder->doom);
    mp_fail(recorder);
    restore_error(saved);
}

/* The top `count` stack values of a frame that is about to run `unit`, as a new tuple; NULL with an
 * exception set when the stack is not that deep. */
static PyObject *
stack_values(Recorder *recorder, const Activation *activation, int unit, int count)
{
    Frame *frame = activation->frame;
    PyObject **base = frame->localsplus + activation->plan->code->co_nlocalsplus;
#if MP_USES_MONITORING
    int depth = activation->plan->depths[unit];
#else
    (void)unit;
    int depth = (int)(frame->localsplus + frame->stacktop - base);
#endif
    if (count > depth) {
        PyErr_Format(PyExc_ValueError, "plan of %R, code unit %d: %d stack values wanted, %d are there",
                     activation->plan->code, unit, count, depth);
        return NULL;
    }
    recorder->top = base + depth;
    if (count == 0) {
        return Py_NewRef(mp_empty);
    }
    PyObject *values = PyTuple_New(count);
    if (values == NULL) {
        return NULL;
    }
    PyObject **first = base + depth - count;
    for (int i = 0; i < count; i++) {
        PyTuple_SET_ITEM(values, i, Py_NewRef(first[i] != NULL ? first[i] : mp_null));
    }
    return values;
}

/* Calls back as call_back does, but leaves the exception of a failure set. */
static inline PyObject *
call_protected(Recorder *recorder, PyObject *callback, PyObject *const *args, size_t count)
{
    PyThreadState *tstate = recorder->tstate;
    mp_allow_recursion(tstate, CALLBACK_RECURSION);
    bool outer = recorder->collects;
    recorder->collects = PyGC_Disable() == 1;
    PyObject *result = PyObject_Vectorcall(callback, args, count | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    if (recorder->collects) {
        PyGC_Enable();
    }
    recorder->collects = outer;
    mp_allow_recursion(tstate, -CALLBACK_RECURSION);
    return result;
}

/* Asks on_error about the pending exception of a callback. When it is not taken care of, it ends the capture. */
static void
handle_error(Recorder *recorder)
{
    if (recorder->on_error == NULL || recorder->status != RECORDER_RUNNING ||
        PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) {
        mp_fail(recorder);
        return;
    }
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback != NULL) {
        PyException_SetTraceback(value, traceback);
    }
    PyObject *on_error = Py_NewRef(recorder->on_error);
    PyObject *args[2] = {NULL, value};
    PyObject *result = call_protected(recorder, on_error, args + 1, 1);
    int handled = result == NULL ? -1 : PyObject_IsTrue(result);
    Py_XDECREF(result);
    Py_DECREF(on_error);
    if (handled > 0) {
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(traceback);
        return;
    }
    if (handled < 0 && PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) {
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(traceback);
    }
    else {
        PyErr_Clear();
        PyErr_Restore(type, value, traceback);
    }
    mp_fail(recorder);
}

/* Calls back with up to four borrowed arguments; the result is new. A failure that on_error does not take care of
 * ends the capture; NULL in both cases. The callback may have stopped the recorder: the caller looks at the status.
 * It may recurse deeper than the program, which keeps its own limit and meets it where it would natively; and no
 * garbage is collected in it, so that finalizers of the program run in the program. */
static inline PyObject *
call_back(Recorder *recorder, PyObject *callback, PyObject *const *args, size_t count)
{
    PyObject *result = call_protected(recorder, callback, args, count);
    if (result == NULL) {
        handle_error(recorder);
    }
    return result;
}

/* Delivers the `after` that is due in an activation. Takes the reference to `outputs` (None: it raised). */
static void
deliver_after(Recorder *recorder, Activation *activation, PyObject *outputs)
{
    const PlanItem *item = activation->pending;
    PyObject *state = activation->state;
    activation->pending = NULL;
    activation->state = NULL;
    if (outputs == NULL) {
        mp_fail(recorder);
        Py_XDECREF(state);
        return;
    }
    PyObject *args[4] = {NULL, state != NULL ? state : Py_None, outputs, item->arg};
    recorder->phase = 1;
    PyObject *result = call_back(recorder, item->after, args + 1, 3);
    recorder->phase = 0;
    recorder->top = NULL;
    Py_XDECREF(result);
    Py_XDECREF(state);
    Py_DECREF(outputs);
}

/* Calls what the innermost frame's current instruction was diverted to, now that it has finished. `unit` is the next
 * one; `raised` and `left` say that there is none of the same block, or of the frame. */
static void
deliver_diverted(Recorder *recorder, Activation *activation, int unit, bool raised, bool left)
{
    while (recorder->diverted != NULL && recorder->status == RECORDER_RUNNING) {
        PyObject *after = recorder->diverted;
        recorder->diverted = NULL;
        PyObject *outputs = raised ? Py_NewRef(Py_None) : left ? Py_NewRef(mp_empty) :
                            stack_values(recorder, activation, unit, recorder->diverted_out);
        if (outputs == NULL) {
            mp_fail(recorder);
        }
        else {
            PyObject *args[4] = {NULL, Py_None, outputs, Py_None};
            recorder->phase = 1;
            PyObject *result = call_back(recorder, after, args + 1, 3);
            recorder->phase = 0;
            Py_XDECREF(result);
            Py_DECREF(outputs);
        }
        Py_DECREF(after);
    }
}

/* Looks for a frame that is not the innermost activation. When it is one further out, the frames inside it are
 * gone without having said so (their exit fell into a pause), and the capture ends. */
static Activation *
find_activation(Recorder *recorder, Frame *frame, PyCodeObject *code)
{
    for (Py_ssize_t at = recorder->depth - 1; at >= 0; at--) {
        if (recorder->stack[at].frame == frame && recorder->stack[at].plan->code == code) {
            PyErr_SetString(PyExc_RuntimeError, "a monitored frame was left while capture was paused");
            mp_fail(recorder);
            break;
        }
    }
    return NULL;
}

/* The activation of a running frame; NULL when the frame is not monitored or the capture has ended. */
Activation *
mp_activation_of(Recorder *recorder, Frame *frame)
{
    PyCodeObject *code = mp_frame_code(frame);
    if (recorder->depth > 0) {
        Activation *innermost = &recorder->stack[recorder->depth - 1];
        if (innermost->frame == frame && innermost->plan->code == code) {
            return innermost;
        }
    }
    return find_activation(recorder, frame, code);
}

/* The arguments of a fresh frame as a new tuple; a cell argument gives its content. */
static PyObject *
argument_values(const Activation *activation)
{
    const Plan *plan = activation->plan;
    if (plan->args == 0) {
        return Py_NewRef(mp_empty);
    }
    PyObject *values = PyTuple_New(plan->args);
    if (values == NULL) {
        return NULL;
    }
    const char *kinds = PyBytes_AS_STRING(plan->code->co_localspluskinds);
    for (int i = 0; i < plan->args; i++) {
        PyObject *value = activation->frame->localsplus[i];
        if (value != NULL && (kinds[i] & CO_FAST_CELL) && PyCell_Check(value)) {
            value = PyCell_GET(value);
        }
        PyTuple_SET_ITEM(values, i, Py_NewRef(value != NULL ? value : mp_null));
    }
    return values;
}

/* Calls on_enter for the innermost activation. */
static void
report_enter(Recorder *recorder, Activation *activation, int kind)
{
    PyObject *values = kind == 0 ? argument_values(activation) : Py_NewRef(mp_empty);
    PyObject *kind_object = PyLong_FromLong(kind);
    PyObject *function = mp_frame_function(activation->frame);
    function = Py_NewRef(function != NULL ? function : Py_None);
    if (values == NULL || kind_object == NULL) {
        mp_fail(recorder);
    }
    else {
        PyObject *args[5] = {NULL, (PyObject *)activation->plan->code, function, values, kind_object};
        recorder->phase = 2;
        PyObject *result = call_back(recorder, recorder->on_enter, args + 1, 4);
        recorder->phase = 0;
        Py_XDECREF(result);
    }
    Py_XDECREF(values);
    Py_XDECREF(kind_object);
    Py_DECREF(function);
}

/* Makes room for one more activation. Returns -1 with an exception set. */
static int
reserve_activation(Recorder *recorder)
{
    if (recorder->depth < recorder->capacity) {
        return 0;
    }
    Py_ssize_t capacity = recorder->capacity ? 2 * recorder->capacity : 64;
    Activation *stack = PyMem_Realloc(recorder->stack, (size_t)capacity * sizeof(Activation));
    if (stack == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    recorder->stack = stack;
    recorder->capacity = capacity;
    return 0;
}

/* The body of mp_enter, with no exception pending. */
static void
enter(Recorder *recorder, Frame *frame, int index, int kind)
{
    if (recorder->diverted != NULL) {
        return;
    }
    Plan *plan = mp_plan_find(recorder, mp_frame_code(frame));
    if (plan == NULL) {
        mp_fail(recorder);
        return;
    }
    if (!plan->monitored || recorder->status != RECORDER_RUNNING) {
        return;
    }
    if (reserve_activation(recorder) < 0) {
        mp_fail(recorder);
        return;
    }
    Activation *activation = &recorder->stack[recorder->depth];
    *activation = (Activation){.frame = frame, .plan = plan, .index = index};
    if (mp_hooks_enter(recorder, activation) < 0) {
        mp_fail(recorder);
        return;
    }
    recorder->depth++;
    recorder->entered++;
    if (recorder->on_enter != NULL) {
        report_enter(recorder, activation, kind);
    }
}

/* A frame starts (kind 0), is resumed (1), or is resumed with an exception (2) at code unit `index`. */
void
mp_enter(Recorder *recorder, Frame *frame, int index, int kind)
{
    SavedError saved = save_error();
    enter(recorder, frame, index, kind);
    restore_error(saved);
}

/* Asks for the plan of a code object whose frame is going to be adopted. A failure ends the capture. */
void
mp_prepare_adoption(Recorder *recorder, PyCodeObject *code)
{
    PyThreadState_EnterTracing(recorder->tstate);
    Plan *plan = mp_plan_find(recorder, code);
    PyThreadState_LeaveTracing(recorder->tstate);
    if (plan == NULL) {
        mp_fail(recorder);
    }
}

/* Takes over a rebuilt frame that is linked as the current one and stands at code unit `index`; nothing is called. */
void
mp_adopt(Recorder *recorder, Frame *frame, int index)
{
    Plan *plan = mp_plan_known(recorder, mp_frame_code(frame));
    if (plan == NULL || !plan->monitored) {
        return;
    }
#if !MP_USES_MONITORING
    PyFrameObject *frame_object = PyThreadState_GetFrame(recorder->tstate);     /* makes frame->frame_obj */
    if (frame_object == NULL) {
        mp_fail(recorder);
        return;
    }
    Py_DECREF(frame_object);
#endif
    if (reserve_activation(recorder) < 0) {
        mp_fail(recorder);
        return;
    }
    Activation *activation = &recorder->stack[recorder->depth];
    *activation = (Activation){.frame = frame, .plan = plan, .index = index, .adopted = true};
    if (mp_hooks_enter(recorder, activation) < 0) {
        mp_fail(recorder);
        return;
    }
    recorder->depth++;
    recorder->entered++;
}

/* Whether the innermost frame was adopted and is this one: its entry was not reported, and is not to be. */
bool
mp_is_adopted(Recorder *recorder, Frame *frame)
{
    Activation *activation = recorder->depth > 0 ? &recorder->stack[recorder->depth - 1] : NULL;
    return activation != NULL && activation->adopted && activation->frame == frame;
}

/* Raises an exception object as it is, with its own traceback and context. */
void
mp_raise(PyObject *exception)
{
    PyErr_Restore(Py_NewRef(Py_TYPE(exception)), Py_NewRef(exception), PyException_GetTraceback(exception));
}

/* The instruction before `unit` (which belongs to the instruction at `index`) has finished: delivers what is due. */
static void
settle(Recorder *recorder, Activation *activation, int unit, int index)
{
    bool raised = (activation->plan->slots[unit] & SLOT_HANDLER) != 0;
    const PlanItem *due = activation->pending;
    recorder->unwound = raised;
    if (due != NULL) {
        PyObject *outputs;
        if (raised) {
            outputs = Py_NewRef(Py_None);
        }
        else if (due->fallthrough >= 0 && due->fallthrough != index) {
            outputs = Py_NewRef(mp_empty);
        }
        else {
            outputs = stack_values(recorder, activation, unit, due->n_out);
        }
        deliver_after(recorder, activation, outputs);
    }
    deliver_diverted(recorder, activation, unit, raised, false);
    recorder->unwound = false;
}

/* A frame is about to run the instruction at code unit `unit` (its first EXTENDED_ARG, if it has any). */
void
mp_instruction(Recorder *recorder, Frame *frame, int unit)
{
    if (recorder->doom != NULL) {
        meet_doom(recorder);
        return;
    }
    Activation *activation = mp_activation_of(recorder, frame);
    if (activation == NULL) {
        return;
    }
    Plan *plan = activation->plan;
    uint32_t slot = plan->slots[unit];
    int index = unit + (int)SLOT_PREFIX(slot);
    recorder->events++;
    if (activation->pending != NULL || recorder->diverted != NULL) {
        recorder->next = unit;
        settle(recorder, activation, unit, index);
        recorder->next = -1;
        if (recorder->status != RECORDER_RUNNING) {
            return;
        }
    }
    activation->index = index;
    if (SLOT_ITEM(slot) == 0) {
        return;
    }
    const PlanItem *item = &plan->items[SLOT_ITEM(slot) - 1];
    recorder->reported++;
    PyObject *state = NULL;
    if (item->before != NULL) {
        PyObject *inputs = stack_values(recorder, activation, unit, item->n_in);
        if (inputs == NULL) {
            mp_fail(recorder);
            return;
        }
        PyObject *args[3] = {NULL, inputs, item->arg};
        state = call_back(recorder, item->before, args + 1, 2);
        recorder->top = NULL;
        Py_DECREF(inputs);
        if (state == NULL) {
            return;
        }
    }
    if (recorder->status != RECORDER_RUNNING || item->after == NULL || recorder->diverted != NULL) {
        Py_XDECREF(state);
        return;
    }
    activation->pending = item;
    activation->state = state;
}

/* A frame is left that was never entered: fails if it should have been monitored. */
void
mp_fail_unseen(Recorder *recorder, PyCodeObject *code)
{
    if (recorder->status != RECORDER_RUNNING || recorder->diverted != NULL) {
        return;
    }
    Plan *plan = mp_plan_find(recorder, code);
    if (plan != NULL && !plan->monitored) {
        return;
    }
    if (plan != NULL) {
        PyErr_Format(PyExc_RuntimeError, "a frame of %R was entered unseen", code);
    }
    mp_fail(recorder);
}

/* The body of mp_leave, with no exception pending. */
static void
leave(Recorder *recorder, Frame *frame, PyObject *value, int kind)
{
    Activation *activation = mp_activation_of(recorder, frame);
    if (activation == NULL) {
        mp_fail_unseen(recorder, mp_frame_code(frame));
        return;
    }
    if (activation->pending != NULL) {
        deliver_after(recorder, activation, Py_NewRef(kind == 2 ? Py_None : mp_empty));
    }
    deliver_diverted(recorder, activation, -1, kind == 2, true);
    if (recorder->status == RECORDER_RUNNING && recorder->on_exit != NULL) {
        PyObject *kind_object = PyLong_FromLong(kind);
        if (kind_object == NULL) {
            mp_fail(recorder);
            return;
        }
        PyObject *args[4] = {NULL, (PyObject *)activation->plan->code, value, kind_object};
        recorder->phase = 3;
        PyObject *result = call_back(recorder, recorder->on_exit, args + 1, 3);
        recorder->phase = 0;
        Py_XDECREF(result);
        Py_DECREF(kind_object);
        deliver_diverted(recorder, activation, -1, kind == 2, true);
    }
    if (recorder->status == RECORDER_RUNNING && kind == 1) {
        mp_hooks_yield(recorder, activation);
    }
    if (recorder->status == RECORDER_RUNNING) {
        recorder->depth--;
        mp_hooks_leave(recorder, activation);
    }
}

/* A frame returns (kind 0) or yields (1) `value` (borrowed), or an exception leaves it (2, value mp_null). */
void
mp_leave(Recorder *recorder, Frame *frame, PyObject *value, int kind)
{
    SavedError saved = save_error();
    recorder->unwound = kind == 2;
    leave(recorder, frame, value, kind);
    recorder->unwound = false;
    restore_error(saved);
}
