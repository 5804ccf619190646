/* A call, a native guard, and the slots that the dispatcher reads: what steps.c and dispatch.c share. */
#ifndef MAGPY_DISPATCH_H
#define MAGPY_DISPATCH_H

#include "facts.h"

#define MAX_REGISTERS 64
#define MAX_KEYWORDS 32

/* An object that a step looks at. */
typedef struct {
    Py_ssize_t number;      /* of a register; -1: `object` */
    PyObject *object;       /* owned or NULL */
} Operand;

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
    STEP_REST,
    STEP_KINDS
} StepKind;

/* Questions about the call; those below are asked of objects. */
#define ASK_ARGUMENT 16
#define ASK_KEYWORD 17
#define ASK_CALL 18
#define ASK_NOTHING (-1)

typedef struct {
    int kind;
    int question;           /* STEP_REST: whether it is given the call's arguments, too */
    Py_ssize_t number;      /* what a failure is called */
    Py_ssize_t index;       /* a register's number, or an expected length; STEP_TENSORS: the last register's place */
    Py_ssize_t argument;    /* an argument's or an element's number */
    Operand *operands;
    Py_ssize_t count;
    PyObject *key;          /* owned or NULL */
    PyObject *expected;     /* owned or NULL */
    PyObject *scratch;      /* owned or NULL; STEP_TENSORS: the arguments, registers' places empty (None) */
} Step;

/* How a result is made. */
typedef enum { MAKE_OUTPUT, MAKE_OPERAND, MAKE_TUPLE, MAKE_LIST, MAKE_DICT } MakeKind;

typedef struct Make {
    int kind;
    Operand operand;        /* MAKE_OPERAND; its number alone for MAKE_OUTPUT */
    struct Make *parts;
    Py_ssize_t count;
    PyObject *keys;         /* owned or NULL; a tuple for MAKE_DICT */
} Make;

typedef struct {
    PyObject_HEAD
    Step *steps;
    Py_ssize_t count;
    Py_ssize_t registers;
    PyObject *modes;        /* owned; tuple of pairs: a function without arguments, and what it must give */
    PyObject *held;         /* owned; the table of held facts, or what stands for it */
    PyObject *tensors;      /* owned */
    PyObject *same_value;   /* owned */
    PyObject *strict;       /* owned or NULL */
    bool direct;            /* running the graph is all that the mock does */
    Operand *inputs;
    Py_ssize_t input_count;
    Make result;
    Py_ssize_t output_count;
} NativeGuard;

/* What a caller gave. */
typedef struct {
    PyObject *const *args;
    Py_ssize_t count;
    PyObject *names;        /* borrowed or NULL; the keywords' names, whose values follow the arguments */
    PyObject *kwargs;       /* borrowed or NULL; a dictionary, instead of `names` */
    PyObject *keywords[MAX_KEYWORDS];   /* borrowed; values in order, once the names are known to fit */
} Call;

/* steps.c */
extern PyTypeObject mp_NativeGuardType;
PyObject *mp_call_args(const Call *call);
PyObject *mp_call_kwargs(const Call *call);
int mp_guard_call(NativeGuard *self, Call *call, PyObject **registers, Py_ssize_t *failed);
int mp_guard_check(NativeGuard *self, const Call *call, PyObject *const *registers, int held, Py_ssize_t failed);
PyObject *mp_guard_bound(const NativeGuard *self, PyObject *const *registers);
PyObject *mp_guard_run(NativeGuard *self, PyObject *run, PyObject *const *registers);

static inline void
mp_drop(PyObject **registers, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_XDECREF(registers[i]);
    }
}

/* dispatch.c */
extern PyTypeObject mp_DispatcherType;
PyObject *mp_dispatch(PyObject *dispatcher, Call *call);
int mp_dispatch_ready(PyObject *module);

/* twin.c */
extern PyTypeObject mp_TwinSlotsType;
extern PyTypeObject mp_TwinCallType;

#endif
