/* The capture protocol in one file: what a plan, an activation and a recorder are, and which file does what.
 *
 *   plan.c              a code object's plan: Python list -> C structs, found by code pointer
 *   events.c            what happens when a frame is entered, runs an instruction, or is left
 *   hooks_trace.c       where events come from on CPython 3.11 (a trace function with opcode events)
 *   hooks_monitoring.c  where events come from on CPython 3.12 and later (sys.monitoring)
 *   recorder.c          the Python type Recorder
 *   segments.c          its methods for boundaries: frames, replace, divert, forget, position
 *   resume.c            rebuilds frames and lets them go on
 *   below.c             calls functions below rebuilt frames that do not go on
 *   hook.c              the Python type FrameHook: frames that are answered instead of being run
 *   stacks.c            the stack's depth at each instruction of a code object
 *   table.c             the Python type FactTable: facts about objects that a record holds, checked in one go
 *   draw.c              questions about iterators of builtin containers
 *   probe.c             questions about objects that run none of the user's code
 *   module.c            the module
 *
 * Nothing that an event does can fail towards the program: whatever goes wrong is kept in Recorder.error,
 * and capture stops. */
#ifndef MAGPY_CAPTURE_H
#define MAGPY_CAPTURE_H

#include "frames.h"

#include <stdbool.h>
#include <stdint.h>

#if defined(_MSC_VER)
#  define MP_THREAD_LOCAL __declspec(thread)
#else
#  define MP_THREAD_LOCAL _Thread_local
#endif

/* How many levels deeper than the program's recursion limit a callback may go. */
#define CALLBACK_RECURSION 500

/* One instruction that is reported. */
typedef struct {
    PyObject *before;   /* owned; NULL: nothing is called before */
    PyObject *after;    /* owned; NULL: nothing is called after */
    PyObject *arg;      /* owned; handed to both */
    int n_in;           /* stack values given to `before` */
    int n_out;          /* stack values given to `after` */
    int fallthrough;    /* code unit that must come next for outputs to exist, or -1 for any */
} PlanItem;

/* One code unit's entry in Plan.slots: the item that is due there, and what the unit is. */
#define SLOT_ITEM(slot) ((slot) & 0x00FFFFFFu)          /* 1 + index into Plan.items, 0: skipped */
#define SLOT_PREFIX(slot) (((slot) >> 24) & 0x0Fu)      /* EXTENDED_ARG units before the instruction itself */
#define SLOT_PREFIX_SHIFT 24
#define SLOT_RESUME 0x10000000u                         /* RESUME: reported by the frame's entry */
#define SLOT_HANDLER 0x20000000u                        /* reached only because an instruction raised */
#define MAX_ITEMS 0x00FFFFFE

/* What is done with one code object; lives as long as its Recorder. */
typedef struct {
    PyCodeObject *code; /* owned, so that its address stays its own */
    bool monitored;     /* false: no events in its frames */
    bool watched;       /* its instruction events are switched on (sys.monitoring) */
    int length;         /* code units */
    int args;           /* local values that are arguments */
    uint32_t *slots;    /* [length] */
    PlanItem *items;    /* [item_count] */
    Py_ssize_t item_count;
    int32_t *depths;    /* [length] stack depth before each unit, -1: unreachable; NULL where frames know it */
} Plan;

/* Plans by code pointer: open addressing, a power of two, at most half full. */
typedef struct {
    Plan **slots;
    size_t capacity;
    size_t used;
} PlanTable;

/* A monitored frame that is running. */
typedef struct {
    Frame *frame;               /* compared; followed only while it is known to run */
    Plan *plan;                 /* borrowed from the table */
    const PlanItem *pending;    /* borrowed; the instruction whose `after` is due, or NULL */
    PyObject *state;            /* owned or NULL; what its `before` returned */
    int index;                  /* the current instruction */
    bool adopted;               /* a rebuilt frame, which was not entered */
#if MP_USES_MONITORING
    int announced;                  /* the instruction that an EXTENDED_ARG event already stood for, or -1 */
#else
    PyFrameObject *frame_object;    /* owned */
    bool hid_lines;                 /* f_trace_lines was on, and is again when the frame is left */
    bool had_opcodes;               /* f_trace_opcodes as it was, given back when the frame is left */
#endif
} Activation;

/* Facts about a code object's stack, see stack_tables in magpy_runtime._instructions. */
typedef struct {
    int length;         /* code units */
    int leave;          /* the code unit of a return instruction, or -1 */
    bool pushes;        /* which takes a value off the stack */
    int32_t *depths;    /* [length] before each unit, -1: unreachable */
    int32_t *kept;      /* [length] the same without what the instruction takes */
    int32_t *indices;   /* [length] the unit of the instruction itself, CALL for PRECALL */
} CodeTables;

typedef enum { RECORDER_NEW, RECORDER_RUNNING, RECORDER_STOPPED, RECORDER_DONE } RecorderStatus;

typedef struct Recorder {
    PyObject_HEAD
    PyObject *plan_for;         /* owned */
    PyObject *on_enter;         /* owned, NULL for None */
    PyObject *on_exit;          /* owned, NULL for None */
    PyObject *on_stop;          /* owned, NULL for None; called once when a failure ends the capture */
    PyObject *on_error;         /* owned, NULL for None */
    PyObject *diverted;         /* owned or NULL: what is called after the innermost frame's current instruction,
                                 * below which nothing is monitored meanwhile */
    int diverted_out;           /* stack values given to `diverted` */
    int next;                   /* inside an `after`: the code unit that comes next; else -1 */
    int phase;                  /* 0: before an instruction, 1: after it, 2: a frame was entered, 3: it is left */
    bool unwound;               /* the innermost frame has raised: what was on its stack is gone */
    bool collects;              /* inside a callback: whether garbage is collected again after it */
    PyObject *doom;             /* owned or NULL: an exception that ends the capture at the next event */
    PyObject *error;            /* owned or NULL */
    RecorderStatus status;
    int paused;                 /* how many times */
    PyThreadState *tstate;      /* the thread of the run; compared only */
    PlanTable plans;
    Activation *stack;          /* outermost first */
    Py_ssize_t depth;
    Py_ssize_t capacity;
    PyObject **top;             /* while a `before` or `after` is called: end of the frame's value stack; else NULL */
    unsigned long long events;
    unsigned long long reported;
    unsigned long long entered;
#if !MP_USES_MONITORING
    Py_tracefunc outer_trace;   /* the trace function found on entry; its object stays in the thread state */
    PyObject *delegating;       /* owned or NULL: a list of weak references to generators, see hooks_trace.c */
#endif
} Recorder;

/* The recorder that runs on this thread and is not stopped (borrowed: `run` holds it), or NULL. */
extern MP_THREAD_LOCAL Recorder *mp_current;

extern PyObject *mp_null;       /* stands for a NULL slot */
extern PyObject *mp_empty;      /* () */
extern PyTypeObject mp_RecorderType;
extern PyTypeObject mp_NullType;
extern PyTypeObject mp_FactTableType;
extern PyTypeObject mp_FrameHookType;
extern PyMethodDef mp_probe_methods[];

/* stacks.c */
int mp_stacks_prepare(void);
const CodeTables *mp_code_tables(PyCodeObject *code);
int mp_find_return(PyCodeObject *code, bool *pushes);

/* hook.c */
PyObject *mp_unhooked(PyObject *module, PyObject *const *args, Py_ssize_t count);

/* below.c */
void mp_dispose(PyThreadState *tstate, Frame *frame, int leave, bool pushes, bool raises);
PyObject *mp_call_below(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *mp_hide(PyObject *module, PyObject *prefixes);

/* resume.c */
PyObject *mp_resume(PyObject *module, PyObject *args, PyObject *kwargs);

/* recorder.c, segments.c */
int mp_check_thread(Recorder *recorder);
PyObject *mp_recorder_frames(PyObject *object, PyObject *ignored);
PyObject *mp_recorder_replace(PyObject *object, PyObject *args);
PyObject *mp_recorder_divert(PyObject *object, PyObject *args);
PyObject *mp_recorder_forget(PyObject *object, PyObject *ignored);
PyObject *mp_recorder_position(PyObject *object, PyObject *ignored);
PyObject *mp_recorder_inputs(PyObject *object, PyObject *ignored);
PyObject *mp_recorder_upcoming(PyObject *object, PyObject *argument);
PyObject *mp_recorder_phase(PyObject *object, PyObject *ignored);

/* plan.c */
Plan *mp_plan_known(Recorder *recorder, PyCodeObject *code);
Plan *mp_plan_find(Recorder *recorder, PyCodeObject *code);
#if MP_USES_MONITORING
int mp_plans_prepare(void);
#endif
int mp_plans_traverse(PlanTable *table, visitproc visit, void *arg);
void mp_plans_clear(PlanTable *table);

/* events.c */
void mp_enter(Recorder *recorder, Frame *frame, int index, int kind);
void mp_instruction(Recorder *recorder, Frame *frame, int unit);
void mp_leave(Recorder *recorder, Frame *frame, PyObject *value, int kind);
void mp_prepare_adoption(Recorder *recorder, PyCodeObject *code);
void mp_adopt(Recorder *recorder, Frame *frame, int index);
bool mp_is_adopted(Recorder *recorder, Frame *frame);
void mp_raise(PyObject *exception);
Activation *mp_activation_of(Recorder *recorder, Frame *frame);
void mp_fail(Recorder *recorder);
void mp_fail_unseen(Recorder *recorder, PyCodeObject *code);
void mp_halt(Recorder *recorder);
void mp_drop_stack(Recorder *recorder);

/* hooks_trace.c or hooks_monitoring.c */
int mp_hooks_install(Recorder *recorder);
void mp_hooks_remove(Recorder *recorder);
bool mp_hooks_alive(Recorder *recorder);
void mp_hooks_pause(Recorder *recorder);
void mp_hooks_unpause(Recorder *recorder);
int mp_hooks_new_plan(Recorder *recorder, Plan *plan);
int mp_hooks_enter(Recorder *recorder, Activation *activation);
void mp_hooks_leave(Recorder *recorder, Activation *activation);
void mp_hooks_yield(Recorder *recorder, Activation *activation);

#endif
