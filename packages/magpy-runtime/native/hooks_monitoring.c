/* Where events come from on CPython 3.12 and later: sys.monitoring.
 *
 * All recorders of a process share one tool id, which is taken by the first and given back by the last. Frame events
 * are switched on for everything, instruction events only for code objects that some recorder has a plan for. The
 * callbacks are C functions; in threads without a recorder they do nothing. */
#include "capture.h"

#if MP_USES_MONITORING

/* The tool id, -1: none is taken; how many recorders use it; how many of them watch a code object, by address. */
static int tool_id = -1;
static Py_ssize_t tool_users = 0;
static PyObject *watched = NULL;

/* Calls a function of sys.monitoring with arguments as for Py_BuildValue (a tuple). A new reference, or NULL. */
static PyObject *
call_monitoring(const char *name, const char *format, ...)
{
    PyObject *module = PySys_GetObject("monitoring");
    if (module == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "sys.monitoring is gone");
        return NULL;
    }
    va_list values;
    va_start(values, format);
    PyObject *args = Py_VaBuildValue(format, values);
    va_end(values);
    PyObject *function = args != NULL ? PyObject_GetAttrString(module, name) : NULL;
    PyObject *result = function != NULL ? PyObject_CallObject(function, args) : NULL;
    Py_XDECREF(args);
    Py_XDECREF(function);
    return result;
}

/* Drops a result. Returns -1 when it is NULL, with the exception still set. */
static int
done(PyObject *result)
{
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

/* The recorder that is to hear of an event on this thread, with the frame it happened in; NULL for none. */
static inline Recorder *
listener(PyObject *code, Frame **frame)
{
    Recorder *recorder = mp_current;
    if (recorder == NULL || recorder->paused) {
        return NULL;
    }
    *frame = mp_current_frame(recorder->tstate);
    return *frame != NULL && (PyObject *)mp_frame_code(*frame) == code ? recorder : NULL;
}

/* The code unit of an event's offset (in bytes). */
static inline int
unit_of(PyObject *offset)
{
    return (int)(PyLong_AsLong(offset) / (long)sizeof(_Py_CODEUNIT));
}

/* A frame starts or is resumed, and its RESUME is reported like any instruction. */
static void
entered(PyObject *const *args, int kind)
{
    Frame *frame;
    Recorder *recorder = listener(args[0], &frame);
    if (recorder == NULL || mp_is_adopted(recorder, frame)) {
        return;
    }
    int unit = unit_of(args[1]);
#if PY_VERSION_HEX >= 0x030D0000
    /* A suspended frame of 3.13 stands at the instruction after the one that suspended it. */
    unit -= kind == 2 && unit > 0;
#endif
    mp_enter(recorder, frame, unit, kind);
    if (kind != 2 && mp_current == recorder && recorder->depth > 0 &&
        recorder->stack[recorder->depth - 1].frame == frame) {
        mp_instruction(recorder, frame, unit);
    }
}

/* A frame returns or yields args[2], or an exception leaves it. */
static void
left(PyObject *const *args, int kind)
{
    Frame *frame;
    Recorder *recorder = listener(args[0], &frame);
    if (recorder != NULL) {
        mp_leave(recorder, frame, kind == 2 ? mp_null : args[2], kind);
    }
}

/* The callbacks take (code, offset[, value]), borrowed, and give None. */
static PyObject *
on_start(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t Py_UNUSED(count))
{
    entered(args, 0);
    Py_RETURN_NONE;
}

static PyObject *
on_resume(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t Py_UNUSED(count))
{
    entered(args, 1);
    Py_RETURN_NONE;
}

static PyObject *
on_throw(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t Py_UNUSED(count))
{
    entered(args, 2);
    Py_RETURN_NONE;
}

static PyObject *
on_return(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t Py_UNUSED(count))
{
    left(args, 0);
    Py_RETURN_NONE;
}

static PyObject *
on_yield(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t Py_UNUSED(count))
{
    left(args, 1);
    Py_RETURN_NONE;
}

static PyObject *
on_unwind(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t Py_UNUSED(count))
{
    left(args, 2);
    Py_RETURN_NONE;
}

/* An instruction event. Frames that are not on the recorder's stack run code that another recorder watches, or are
 * just at their RESUME, which is reported by their entry. EXTENDED_ARG gives an event, and so does the instruction
 * that it belongs to: the first of them counts. */
static PyObject *
on_instruction(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t Py_UNUSED(count))
{
    Frame *frame;
    Recorder *recorder = listener(args[0], &frame);
    if (recorder == NULL || recorder->depth == 0) {
        Py_RETURN_NONE;
    }
    Activation *activation = &recorder->stack[recorder->depth - 1];
    int unit = unit_of(args[1]);
    if (activation->frame != frame || (PyObject *)activation->plan->code != args[0]) {
        Plan *plan = mp_plan_known(recorder, (PyCodeObject *)args[0]);
        if (plan != NULL && plan->monitored && !(plan->slots[unit] & SLOT_RESUME)) {
            mp_activation_of(recorder, frame);
        }
        Py_RETURN_NONE;
    }
    uint32_t slot = activation->plan->slots[unit];
    int index = unit + (int)SLOT_PREFIX(slot);
    if ((slot & SLOT_RESUME) || activation->announced == index) {
        if (unit == index) {
            activation->announced = -1;
        }
        Py_RETURN_NONE;
    }
    activation->announced = unit == index ? -1 : index;
    mp_instruction(recorder, frame, unit);
    Py_RETURN_NONE;
}

#define CALLBACK(function) (PyCFunction)(void (*)(void))function, METH_FASTCALL, NULL

static struct {
    const char *event;
    PyMethodDef method;
} callbacks[] = {
    {"PY_START", {"on_start", CALLBACK(on_start)}},
    {"PY_RESUME", {"on_resume", CALLBACK(on_resume)}},
    {"PY_THROW", {"on_throw", CALLBACK(on_throw)}},
    {"PY_RETURN", {"on_return", CALLBACK(on_return)}},
    {"PY_YIELD", {"on_yield", CALLBACK(on_yield)}},
    {"PY_UNWIND", {"on_unwind", CALLBACK(on_unwind)}},
    {"INSTRUCTION", {"on_instruction", CALLBACK(on_instruction)}},
};
#define CALLBACK_COUNT (sizeof callbacks / sizeof callbacks[0])

/* The bit of an event, -1 with an exception set. */
static long
event_bit(const char *name)
{
    PyObject *module = PySys_GetObject("monitoring");
    PyObject *events = module != NULL ? PyObject_GetAttrString(module, "events") : NULL;
    PyObject *bit = events != NULL ? PyObject_GetAttrString(events, name) : NULL;
    long value = bit != NULL ? PyLong_AsLong(bit) : -1;
    Py_XDECREF(bit);
    Py_XDECREF(events);
    return value;
}

/* Registers each callback, or takes each back. Returns -1 with an exception set. */
static int
register_callbacks(int tool, bool on)
{
    for (size_t i = 0; i < CALLBACK_COUNT; i++) {
        long bit = event_bit(callbacks[i].event);
        PyObject *callback = on ? PyCFunction_New(&callbacks[i].method, NULL) : Py_NewRef(Py_None);
        if (bit < 0 || callback == NULL) {
            Py_XDECREF(callback);
            return -1;
        }
        if (done(call_monitoring("register_callback", "(ilN)", tool, bit, callback)) < 0) {
            return -1;
        }
    }
    return 0;
}

/* Gives the tool id back. Errors are dropped: there is nobody who could act on them. */
static void
give_tool_back(void)
{
    int tool = tool_id;
    tool_id = -1;
    if (done(call_monitoring("set_events", "(ii)", tool, 0)) < 0 || register_callbacks(tool, false) < 0 ||
        done(call_monitoring("free_tool_id", "(i)", tool)) < 0) {
        PyErr_Clear();
    }
}

/* Takes a free tool id, registers the callbacks and switches the frame events on. Returns -1 with an exception. */
static int
take_tool(void)
{
    static const int candidates[] = {3, 4, 5, 2, 1, 0};
    int tool = -1;
    for (size_t i = 0; tool < 0 && i < sizeof candidates / sizeof candidates[0]; i++) {
        PyObject *user = call_monitoring("get_tool", "(i)", candidates[i]);
        if (user == Py_None) {
            tool = candidates[i];
        }
        if (done(user) < 0) {
            return -1;
        }
    }
    if (tool < 0) {
        PyErr_SetString(PyExc_RuntimeError, "all of sys.monitoring's tool ids are in use");
        return -1;
    }
    if (done(call_monitoring("use_tool_id", "(is)", tool, "magpy")) < 0) {
        return -1;
    }
    tool_id = tool;
    long events = 0;
    for (size_t i = 0; i + 1 < CALLBACK_COUNT; i++) {
        long bit = event_bit(callbacks[i].event);
        if (bit < 0) {
            return -1;
        }
        events |= bit;
    }
    if (register_callbacks(tool, true) < 0) {
        return -1;
    }
    if (done(call_monitoring("set_events", "(il)", tool, events)) < 0) {
        return -1;
    }
    uint8_t users = PyInterpreterState_Get()->monitors.tools[PY_MONITORING_EVENT_INSTRUCTION];
    return users == 0 ? 0 : done(call_monitoring("restart_events", "()"));
}

/* Starts the events of this thread. Returns -1 with an exception set. */
int
mp_hooks_install(Recorder *recorder)
{
    if (PyThreadState_Get()->tracing != 0) {
        PyErr_SetString(PyExc_RuntimeError, "a trace, profile or monitoring function cannot start a capture");
        return -1;
    }
    (void)recorder;
    if (mp_plans_prepare() < 0 || (watched == NULL && (watched = PyDict_New()) == NULL)) {
        return -1;
    }
    if (tool_users == 0 && take_tool() < 0) {
        if (tool_id >= 0) {
            PyObject *type, *value, *traceback;
            PyErr_Fetch(&type, &value, &traceback);
            give_tool_back();
            PyErr_Restore(type, value, traceback);
        }
        return -1;
    }
    tool_users++;
    return 0;
}

/* Changes how many recorders watch a code object. Gives the new number, -1 with an exception set. */
static Py_ssize_t
count_watcher(PyCodeObject *code, int change)
{
    PyObject *key = PyLong_FromVoidPtr(code);
    if (key == NULL) {
        return -1;
    }
    PyObject *known = PyDict_GetItemWithError(watched, key);
    Py_ssize_t count = (known != NULL ? PyLong_AsSsize_t(known) : 0) + change;
    PyObject *value = PyErr_Occurred() ? NULL : PyLong_FromSsize_t(count);
    int status = value == NULL ? -1 : count > 0 ? PyDict_SetItem(watched, key, value) : PyDict_DelItem(watched, key);
    Py_DECREF(key);
    Py_XDECREF(value);
    return status < 0 ? -1 : count;
}

/* Gives the other tools' instruction events of a code object back. CPython forgets them when a second tool wants some:
 * update_instrumentation_data starts per_instruction_tools with zeros. What such a tool had disabled is on again. */
static void
keep_others_instructions(PyCodeObject *code)
{
    _PyCoMonitoringData *data = code->_co_monitoring;
    uint8_t others = data->active_monitors.tools[PY_MONITORING_EVENT_INSTRUCTION] & (uint8_t)~(1 << tool_id);
    if (others == 0 || data->per_instruction_tools == NULL) {
        return;
    }
    for (Py_ssize_t i = code->_co_firsttraceable; i < Py_SIZE(code); i++) {
        if (data->per_instruction_opcodes[i] != 0) {
            data->per_instruction_tools[i] |= others;
        }
    }
}

/* Switches the instruction events of a code object on. Returns -1 with an exception set. */
int
mp_hooks_new_plan(Recorder *recorder, Plan *plan)
{
    (void)recorder;
    Py_ssize_t watchers = count_watcher(plan->code, 1);
    if (watchers < 0) {
        return -1;
    }
    plan->watched = true;
    if (watchers > 1) {
        return 0;
    }
    long bit = event_bit("INSTRUCTION");
    if (bit < 0 || done(call_monitoring("set_local_events", "(iOl)", tool_id, plan->code, bit)) < 0) {
        return -1;
    }
    keep_others_instructions(plan->code);
    return 0;
}

/* Whether another tool wants line events of a code object. */
static bool
has_line_events(PyCodeObject *code)
{
    const _PyCoMonitoringData *data = code->_co_monitoring;
    return data != NULL && data->active_monitors.tools[PY_MONITORING_EVENT_LINE] != 0;
}

/* Ends a recorder's events. Errors are dropped: what stays behind is events that nobody listens to. */
void
mp_hooks_remove(Recorder *recorder)
{
    bool lines = false;
    for (size_t i = 0; i < recorder->plans.capacity; i++) {
        Plan *plan = recorder->plans.slots[i];
        if (plan == NULL || !plan->watched) {
            continue;
        }
        plan->watched = false;
        if (count_watcher(plan->code, -1) == 0) {
            lines = lines || has_line_events(plan->code);
            done(call_monitoring("set_local_events", "(iOi)", tool_id, plan->code, 0));
        }
        PyErr_Clear();
    }
    if (--tool_users == 0) {
        give_tool_back();
    }
    /* CPython 3.12 takes an instruction's line event away together with its instruction event (de_instrument_per_
     * instruction writes over INSTRUMENTED_LINE); restarting the events brings it back. */
    if (lines && done(call_monitoring("restart_events", "()")) < 0) {
        PyErr_Clear();
    }
}

/* Whether the events still come. Nobody else can take the tool id. */
bool
mp_hooks_alive(Recorder *recorder)
{
    (void)recorder;
    return true;
}

/* The callbacks look at Recorder.paused. */
void
mp_hooks_pause(Recorder *recorder)
{
    (void)recorder;
}

void
mp_hooks_unpause(Recorder *recorder)
{
    (void)recorder;
}

/* Nothing to prepare in a frame. */
int
mp_hooks_enter(Recorder *recorder, Activation *activation)
{
    (void)recorder;
    activation->announced = -1;
    return 0;
}

void
mp_hooks_leave(Recorder *recorder, Activation *activation)
{
    (void)recorder;
    (void)activation;
}

void
mp_hooks_yield(Recorder *recorder, Activation *activation)
{
    (void)recorder;
    (void)activation;
}

#endif
